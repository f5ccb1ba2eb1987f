/* fuzz_tags.c: see fuzz_tags.h. */
#include "simnic/nic/tests/fuzz_tags.h"

#include <string.h>

#define PLACES 8u /* few, so that the list is often full */
#define TAGS 4u   /* of messages, so that they often match */

struct rig_srq *fuzz_tags_srq(struct rig *rig, struct rig_cq *cq)
{
    struct rig_srq *srq = rig_srq_new(rig, 64);
    if (!tags_create(srq->srq, PLACES)) {
        return NULL;
    }
    srq->srq->completion_queue = cq->cq;
    srq->srq->user_index = 0x7777;
    return srq;
}

void fuzz_tags_wqe(struct rig_wqe *wqe, const uint8_t choices[FUZZ_TAG_CHOICES],
                   const struct mlx5_wqe_data_seg *buffer)
{
    uint8_t operation = choices[0] < 160 ? 1 : choices[0] % 4;
    struct mlx5_wqe_tm_seg tag = {
        .opcode = (uint8_t)(operation << 4 | (choices[0] == 255)),
        .flags = choices[1] < 200 ? 0x80 : choices[1],
        .index = htobe16(choices[2] % (PLACES + (choices[2] == 255))),
        .sw_cnt = htobe16(choices[3] % 4),
        .append_tag = htobe64(choices[4] % TAGS),
        .append_mask = choices[5] < 200 ? UINT64_MAX : htobe64(choices[5] & 3),
    };
    memcpy(wqe->bytes + wqe->size, &tag, sizeof(tag));
    wqe->size += (uint32_t)sizeof(tag);
    if (operation != 1 && choices[6] < 250) {
        return;
    }
    if (choices[6] & 1) {
        rig_wqe_data(wqe, be64toh(buffer->addr), be32toh(buffer->byte_count),
                     be32toh(buffer->lkey));
    } else if (choices[6] & 14) {
        rig_wqe_data(wqe, 0, 0, RIG_LIST_END);
    }
}

void fuzz_tags_header(uint8_t *at, uint32_t room, const uint8_t choices[FUZZ_TAG_CHOICES],
                      const struct mlx5_wqe_data_seg *from)
{
    struct {
        struct ibv_tmh header;
        struct ibv_rvh where;
    } headers = {{.opcode = choices[0] < 200 ? 1 + choices[0] % 2 * 2 : choices[0] % 5,
                  .tag = htobe64(choices[1] % TAGS)},
                 {from->addr, from->lkey, from->byte_count}};
    if (choices[2] < 200) {
        headers.where.len = htobe32(choices[3]);
    }
    memcpy(at, &headers, room < sizeof(headers) ? room : sizeof(headers));
}

bool fuzz_tags_count(const struct rig_srq *srq, const struct mlx5_cqe64 *cqe, uint32_t *receives)
{
    uint8_t opcode = cqe->op_own >> 4;
    bool ordinary = opcode == MLX5_CQE_RESP_ERR || cqe->app != TAG_APPLICATION;
    if (!ordinary && cqe->app_op != TAG_CQE_UNEXPECTED && cqe->app_op != TAG_CQE_WITHOUT) {
        return cqe->app_op <= TAG_CQE_CANCELED && be16toh(cqe->app_info) < PLACES;
    }
    return ++*receives <= srq->srq->taken;
}
