/* fuzz_tags.h: what the fuzz target does with tag matching: three QPs, of which one sends, one
 * receives at a tag-matching SRQ, and one changes its list. Choices are bytes of the input. */
#ifndef SIMNIC_NIC_TESTS_FUZZ_TAGS_H
#define SIMNIC_NIC_TESTS_FUZZ_TAGS_H

#include "simnic/nic/tag.h"
#include "simnic/nic/tests/rig.h"

#define FUZZ_TAG_CHOICES 8u

struct rig_srq *fuzz_tags_srq(struct rig *rig, struct rig_cq *cq);
/* Adds the segments of a WQE for the list that is nearly right. */
void fuzz_tags_wqe(struct rig_wqe *wqe, const uint8_t choices[FUZZ_TAG_CHOICES],
                   const struct mlx5_wqe_data_seg *buffer);
/* Writes the headers of a message, as far as there is room. */
void fuzz_tags_header(uint8_t *at, uint32_t room, const uint8_t choices[FUZZ_TAG_CHOICES],
                      const struct mlx5_wqe_data_seg *from);
/* Counts a CQE of the SRQ's and says whether it may be. *receives: completed WQEs of the SRQ so
 * far. */
bool fuzz_tags_count(const struct rig_srq *srq, const struct mlx5_cqe64 *cqe, uint32_t *receives);

#endif
