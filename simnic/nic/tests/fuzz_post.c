/* fuzz_post.c: send WQEs that are nearly right. */
#include <string.h>

#include "simnic/nic/tests/fuzz_world.h"

static void post_data(struct rig_wqe *wqe)
{
    uint32_t segments = input_below(5);
    if (segments == 4) {
        uint8_t data[256];
        uint32_t length = input_byte();
        input_bytes(data, length < 32 ? length : 32);
        rig_wqe_inline(wqe, data, length);
        return;
    }
    for (uint32_t i = 0; i < segments; i++) {
        const struct rig_memory *memory = fuzz_some_memory();
        rig_wqe_data(wqe, fuzz_some_address(memory), fuzz_some_length(), fuzz_some_key(memory));
    }
}

/* The start of a message for the tag-matching SRQ. */
static void post_header(struct rig_wqe *wqe)
{
    uint8_t header[TAG_HEADERS_BYTES];
    fuzz_write_header(header, sizeof(header));
    rig_wqe_inline(wqe, header, input_byte() & 1 ? sizeof(header) : 16);
}

static void post_tag(struct rig_wqe *wqe)
{
    uint8_t choices[FUZZ_TAG_CHOICES];
    struct mlx5_wqe_data_seg buffer = fuzz_some_segment();
    input_bytes(choices, sizeof(choices));
    fuzz_tags_wqe(wqe, choices, &buffer);
}

/* What binds or invalidates a window (window.c). */
static void post_window(struct rig_wqe *wqe)
{
    const struct rig_memory *region = fuzz_some_memory();
    struct mlx5_wqe_umr_ctrl_seg control = {.flags = input_byte() & 3 ? 1 << 7 : input_byte()};
    struct mlx5_wqe_mkey_context_seg context = {
        .free = input_byte() & 3 ? 0 : 1 << 6,
        .access_flags = input_byte(),
        .qpn_mkey = htobe32(fuzz_some_qp()->qp->number << 8 | (fuzz.memory[5].key & 0xff)),
        .start_addr = htobe64(fuzz_some_address(region)),
        .len = htobe64(fuzz_some_length()),
    };
    struct mlx5_wqe_umr_klm_seg klm = {htobe32(fuzz_some_length()), htobe32(fuzz_some_key(region)),
                                       htobe64(fuzz_some_address(region))};
    memcpy(wqe->bytes + wqe->size, &control, sizeof(control));
    memcpy(wqe->bytes + wqe->size + sizeof(control), &context, sizeof(context));
    memcpy(wqe->bytes + wqe->size + sizeof(control) + sizeof(context), &klm, sizeof(klm));
    wqe->size += sizeof(control) + sizeof(context) + sizeof(klm);
    wqe->immediate = htobe32(fuzz_some_key(&fuzz.memory[5]));
}

/* A layout of an indirect key (indirect.c): a list of pieces, or pieces that repeat. */
static uint32_t write_layout(uint8_t *at)
{
    uint32_t count = input_below(10), octowords = count;
    if (input_byte() & 1) {
        struct mlx5_wqe_umr_repeat_block_seg block = {
            .op = htobe32(0x400),
            .repeat_count = htobe32(input_byte() & 7 ? input_byte() : input_word()),
            .num_ent = htobe16((uint16_t)(input_byte() < 230 ? count : input_word()))};
        uint32_t bytes = 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct rig_memory *region = fuzz_some_memory();
            uint16_t length = input_byte();
            struct mlx5_wqe_umr_repeat_ent_seg entry = {
                htobe16((uint16_t)(length + input_byte())), htobe16(length),
                htobe32(fuzz_some_key(region)), htobe64(fuzz_some_address(region))};
            bytes += length;
            memcpy(at + 16ul * (i + 1), &entry, sizeof(entry));
        }
        block.byte_count = htobe32(input_byte() < 230 ? bytes : input_word());
        memcpy(at, &block, sizeof(block));
        return octowords + 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct mlx5_wqe_data_seg piece = fuzz_some_segment(); /* a KLM looks like it */
        memcpy(at + 16ul * i, &piece, sizeof(piece));
    }
    return octowords;
}

static void post_layout(struct rig_wqe *wqe)
{
    const struct rig_memory *memory = &fuzz.memory[INDIRECT_KEY];
    uint8_t layout[16 * 16] = {0};
    uint32_t octowords = write_layout(layout);
    const uint64_t usual = MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE |
                           MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
                           MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
                           MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
                           MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
    struct mlx5_wqe_umr_ctrl_seg control = {
        .flags = input_byte() & 7 ? 1 << 7 : input_byte(),
        .klm_octowords = htobe16((uint16_t)(input_byte() < 240 ? octowords : input_word())),
        .mkey_mask = htobe64(input_byte() < 200 ? usual : usual ^ input_word())};
    struct mlx5_wqe_mkey_context_seg context = {
        .free = input_byte() & 7 ? 0 : 1 << 6,
        .access_flags = input_byte() < 200 ? 0x7c : input_byte(),
        .qpn_mkey = htobe32(0xffffff00 | (memory->key & 0xff)),
        .len = htobe64(input_byte() & 1 ? MEMORY_BYTES : fuzz_some_length())};
    memcpy(wqe->bytes + wqe->size, &control, sizeof(control));
    memcpy(wqe->bytes + wqe->size + sizeof(control), &context, sizeof(context));
    memcpy(wqe->bytes + wqe->size + sizeof(control) + sizeof(context), layout, 16ul * octowords);
    wqe->size += (uint32_t)(sizeof(control) + sizeof(context)) + 16 * octowords;
    wqe->immediate = htobe32(fuzz_some_key(memory));
}

/* A WQE that is nearly right. */
void fuzz_post(void)
{
    static const uint8_t opcodes[] = {MLX5_OPCODE_SEND,        MLX5_OPCODE_SEND_IMM,
                                      MLX5_OPCODE_RDMA_WRITE,  MLX5_OPCODE_RDMA_WRITE_IMM,
                                      MLX5_OPCODE_RDMA_READ,   MLX5_OPCODE_ATOMIC_CS,
                                      MLX5_OPCODE_ATOMIC_FA,   MLX5_OPCODE_NOP,
                                      MLX5_OPCODE_SEND_INVAL,  MLX5_OPCODE_UMR,
                                      MLX5_OPCODE_TAG_MATCHING};
    struct rig_qp *qp = fuzz_some_qp();
    const struct rig_memory *remote = fuzz_some_memory();
    struct rig_wqe wqe;
    uint8_t choice = input_byte(), opcode = choice < 250 ? opcodes[choice % 11] : input_byte();
    if (qp == fuzz.qp[8] && input_byte() < 230) {
        opcode = MLX5_OPCODE_TAG_MATCHING;
    }
    rig_wqe_start(&wqe, opcode, input_byte());
    wqe.immediate = htobe32(fuzz_some_key(remote));
    if (qp->qp->type == TYPE_UD) {
        rig_wqe_address(&wqe, input_byte() < 200 ? fuzz_some_qp()->qp->number : 0xffffff,
                        input_byte() ? 0x11111111 : input_word(),
                        rails[input_byte() & 1].gid[3].raw, input_byte() & 15);
    }
    if (opcode >= MLX5_OPCODE_RDMA_WRITE && opcode != MLX5_OPCODE_SEND &&
        opcode != MLX5_OPCODE_SEND_IMM && opcode != MLX5_OPCODE_TAG_MATCHING &&
        opcode != MLX5_OPCODE_UMR) {
        rig_wqe_remote(&wqe, fuzz_some_address(remote), fuzz_some_key(remote));
    }
    if (opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA) {
        rig_wqe_atomic(&wqe, input_word(), input_word());
    }
    if (opcode == MLX5_OPCODE_UMR && input_byte() & 1) {
        post_layout(&wqe);
    } else if (opcode == MLX5_OPCODE_UMR) {
        post_window(&wqe);
    } else if (opcode == MLX5_OPCODE_TAG_MATCHING) {
        post_tag(&wqe);
    } else if (qp != fuzz.qp[6] || input_byte() < 50) {
        post_data(&wqe);
    } else {
        post_header(&wqe);
    }
    rig_wqe_finish(&wqe, qp);
    if (input_byte() > 240) {
        wqe.bytes[input_byte() % wqe.size] = input_byte();
    }
    rig_put(qp, &wqe);
    if (input_byte() < 200) {
        rig_ring(qp, &wqe);
    }
}
