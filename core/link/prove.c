/* prove.c: see prove.h.
 *
 * Each side says three words, by WRITE with immediate into a page of the other side:
 *
 *   1  a nonce, as soon as the queue pair is connected
 *   2  the proof that it knows the key, when it has the peer's nonce
 *   3  the body of its service, when it has checked the peer's proof. Only then has it registered
 *      the memory that the body tells of
 *
 * When a side has the peer's third word, and has sent its own, it opens the link. It has written its own by then: the peer
 * says its third only after this side's second, and that only after its own second. But a dynamic queue pair may wait for
 * room to send it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/page.h"
#include "link/internal.h"
#include "link/proof.h"
#include "link/prove.h"

struct link_proof {
    uint8_t *pages;  /* the peer's words in the first, ours in the second */
    uint64_t secret; /* where the peer finds the first */
    struct nic_keys in_keys;
    struct nic_keys out_keys;
    struct link_hello our_hello;
    uint8_t our_nonce[LINK_PROOF_BYTES];
    uint8_t their_nonce[LINK_PROOF_BYTES];
    uint32_t said;   /* words that are written, */
    uint32_t sent;   /* and sent: as the queue pair has room */
    uint32_t heard;  /* words of the peer that were taken */
    bool wrong;      /* the peer's proof is not of our key */
    bool body_waits; /* the peer's third word has come, and is taken after `expose` */
    bool heard_all;  /* that word was taken */
    bool nonce_held; /* the peer's first word has come before this side was connected */
    bool done;
    struct link_task expose;
};

/* ---- Making and ending ----------------------------------------------------------------------- */

static int32_t make_pages(struct link *link, crpc_error *error)
{
    struct nic *nic = link->group->nic;
    struct link_proof *proof = link->proof;
    void *pages =
        mmap(NULL, 2 * page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return error_set(error, CRPC_E_NO_MEMORY, errno, "no memory to compare keys");
    }
    proof->pages = pages;
    madvise(pages, 2 * page_bytes(), MADV_DONTFORK); /* as of all that a device writes */
    int32_t status = link_secret_address(&proof->secret, error);
    if (status == CRPC_OK) {
        status = nic->operations->memory_register(
            nic, link->domain, pages, page_bytes(), proof->secret,
            CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &proof->in_keys, error);
    }
    if (status == CRPC_OK) {
        status = nic->operations->memory_register(nic, link_own_domain(link),
                                                  proof->pages + page_bytes(), page_bytes(), 0, 0,
                                                  &proof->out_keys, error);
    }
    return status;
}

int32_t link_prove_prepare(struct link *link, crpc_error *error)
{
    assert(!link->proof);
    if (link->options.key_bytes == 0) {
        return CRPC_OK;
    }
    assert(link->queue_pair);
    int32_t status = proof_load(error);
    if (status != CRPC_OK) {
        return status;
    }
    link->proof = calloc(1, sizeof(*link->proof));
    if (!link->proof) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory to compare keys");
    }
    if (getrandom(link->proof->our_nonce, LINK_PROOF_BYTES, 0) != LINK_PROOF_BYTES) {
        status = error_set(error, CRPC_E_SYSTEM, errno, "getrandom failed: %s", strerror(errno));
    } else {
        status = make_pages(link, error);
    }
    if (status != CRPC_OK) {
        link_prove_end(link);
    }
    return status;
}

void link_prove_forget_key(struct link *link)
{
    explicit_bzero(link->options.key, sizeof(link->options.key));
}

void link_prove_end(struct link *link)
{
    struct link_proof *proof = link->proof;
    struct nic *nic = link->group->nic;
    link_prove_forget_key(link);
    if (!proof) {
        return;
    }
    if (proof->in_keys.driver) {
        nic->operations->memory_deregister(nic, &proof->in_keys);
    }
    if (proof->out_keys.driver) {
        nic->operations->memory_deregister(nic, &proof->out_keys);
    }
    if (proof->pages) {
        munmap(proof->pages, 2 * page_bytes());
    }
    free(proof);
    link->proof = NULL;
}

/* ---- Hellos ---------------------------------------------------------------------------------- */

void link_prove_fill_body(const struct link *link, uint8_t body[LINK_BODY_BYTES])
{
    struct link_proof_body wire = {
        .address = link->proof->secret,
        .key = link->proof->in_keys.remote_key,
        .queue_pair_number = link->queue_pair->number,
    };
    memcpy(body, &wire, sizeof(wire));
}

const char *link_prove_body_fault(const uint8_t body[LINK_BODY_BYTES])
{
    struct link_proof_body wire;
    memcpy(&wire, body, sizeof(wire));
    if (wire.address % sizeof(struct link_word) != 0 ||
        wire.address > UINT64_MAX - LINK_WORDS * sizeof(struct link_word)) {
        return "its memory for the proof is at an impossible address";
    }
    if (wire.queue_pair_number > 0xffffff) {
        return "its queue pair is out of range";
    }
    return wire.zero != 0 ? "reserved bytes are set" : NULL;
}

void link_prove_hello(struct link *link, const struct link_hello *hello)
{
    if (link->proof) {
        link->proof->our_hello = *hello;
    }
}

int32_t link_prove_check(const struct link *link, crpc_error *error)
{
    bool ours = link->options.key_bytes > 0;
    return ours == link->peer.proves ? CRPC_OK : link_prove_missing(ours, error);
}

int32_t link_prove_missing(bool ours, crpc_error *error)
{
    return error_set(error, CRPC_E_KEY, 0, "%s: give both the same",
                     ours ? "this side has a key and the peer has none"
                          : "the peer asks for the key, and this side has none");
}

bool link_proving(const struct link *link)
{
    return link->proof && !link->proof->done;
}

/* ---- Saying ---------------------------------------------------------------------------------- */

static int32_t make(const struct link *link, bool of_peer, bool of_body, const uint8_t *body,
                    uint8_t *result, crpc_error *error)
{
    const struct link_proof *proof = link->proof;
    bool connecting =
        link->passive == of_peer; /* whether the side that proves is the connecting one */
    struct proof_transcript transcript;
    static const uint8_t nothing[LINK_BODY_BYTES];
    enum proof_kind kind = connecting ? PROOF_OF_CONNECTING : PROOF_OF_ACCEPTING;
    if (of_body) {
        kind = connecting ? PROOF_BODY_OF_CONNECTING : PROOF_BODY_OF_ACCEPTING;
    }
    transcript.connecting_hello = link->passive ? link->peer.hello : proof->our_hello;
    transcript.accepting_hello = link->passive ? proof->our_hello : link->peer.hello;
    memcpy(transcript.connecting_nonce, link->passive ? proof->their_nonce : proof->our_nonce,
           LINK_PROOF_BYTES);
    memcpy(transcript.accepting_nonce, link->passive ? proof->our_nonce : proof->their_nonce,
           LINK_PROOF_BYTES);
    return proof_make(kind, link->options.key, link->options.key_bytes, &transcript,
                      of_body ? body : nothing, result, error);
}

void link_prove_send(struct link *link)
{
    struct link_proof *proof = link->proof;
    struct nic_queue_pair *queue_pair = link->queue_pair;
    struct link_proof_body theirs;
    memcpy(&theirs, link->peer.hello.body, sizeof(theirs));
    while (proof->sent < proof->said && (nic_send_room(queue_pair) > 0 || link_take_room(link))) {
        const uint32_t index = proof->sent++;
        const struct link_word *place =
            (const struct link_word *)(void *)(proof->pages + page_bytes()) + index;
        const struct nic_transfer transfer = {
            .local_address = (uint64_t)(uintptr_t)place,
            .remote_address = theirs.address + index * sizeof(*place),
            .bytes = sizeof(*place),
            .local_key = proof->out_keys.local_key,
            .remote_key = theirs.key,
            .immediate = index + 1,
        };
        queue_pair->operations->post_write_immediate(queue_pair, &transfer,
                                                     NIC_POST_SIGNALED | NIC_POST_RING);
    }
    if (proof->heard_all && proof->sent == proof->said && !proof->done) {
        proof->done = true;
        link_open(link);
    }
}

static void say(struct link *link, const struct link_word *word)
{
    struct link_proof *proof = link->proof;
    assert(proof->said < LINK_WORDS);
    ((struct link_word *)(void *)(proof->pages + page_bytes()))[proof->said++] = *word;
    link_prove_send(link);
}

static void take_word(struct link *link, uint32_t number);

void link_prove_begin(struct link *link)
{
    struct link_proof_body theirs;
    struct link_word word = {0};
    if (link->proof->said > 0) {
        return;
    }
    /* A peer that passes on what two others say has to do so from a queue pair of its own. */
    memcpy(&theirs, link->peer.hello.body, sizeof(theirs));
    if (theirs.queue_pair_number != link->queue_pair->peer_number) {
        link_violated(link, "its hello tells of queue pair 0x%x, and it uses 0x%x",
                      theirs.queue_pair_number, link->queue_pair->peer_number);
        return;
    }
    memcpy(word.proof, link->proof->our_nonce, sizeof(word.proof));
    say(link, &word);
    if (link->proof->nonce_held) {
        take_word(link, LINK_WORD_NONCE);
    }
}

void link_prove_hold(struct link *link, uint32_t number)
{
    if (number != LINK_WORD_NONCE || link->proof->nonce_held) {
        link_violated(link, "word %u of the proof came before this side was connected", number);
        return;
    }
    link->proof->nonce_held = true;
}

/* ---- Hearing --------------------------------------------------------------------------------- */

static void wrong_key(crpc_error *error)
{
    error_set(
        error, CRPC_E_KEY, 0,
        "the peer has another key, or somebody has changed what the two sides said: give both "
        "the same key");
}

/* The peer has to hear our proof too, so that it knows why the connection ends. */
static void end_if_wrong(struct link *link)
{
    crpc_error error = {0};
    if (link->proof->wrong && link->proof->sent == link->proof->said &&
        link->queue_pair->posted == link->queue_pair->completed) {
        wrong_key(&error);
        link_fail(link, &error);
    }
}

static void take_nonce(struct link *link, const struct link_word *word)
{
    struct link_word answer = {0};
    crpc_error error = {0};
    memcpy(link->proof->their_nonce, word->proof, LINK_PROOF_BYTES);
    if (make(link, false, false, NULL, answer.proof, &error) != CRPC_OK) {
        link_fail(link, &error);
        return;
    }
    say(link, &answer);
}

/* In a thread of cm, if there is one: registering memory takes its time. */
static int32_t expose(struct link_task *task, crpc_error *error)
{
    return task->link->group->service->expose(task->link, error);
}

static void exposed(struct link_task *task, const crpc_error *given)
{
    struct link *link = task->link;
    struct link_word answer = {0};
    crpc_error error = *given;
    if (link->failing) {
        return;
    }
    if (error.status == CRPC_OK) {
        link->group->service->fill_body(link, answer.body);
        make(link, false, true, answer.body, answer.proof, &error);
    }
    if (error.status != CRPC_OK) {
        link_fail(link, &error);
        return;
    }
    say(link, &answer);
    if (link->proof->body_waits) {
        take_word(link, LINK_WORD_BODY);
    }
}

static void take_proof(struct link *link, const struct link_word *word)
{
    crpc_error error = {0};
    uint8_t expected[LINK_PROOF_BYTES];
    int32_t status = make(link, true, false, NULL, expected, &error);
    if (status == CRPC_OK && !proof_equal(word->proof, expected)) {
        link->proof->wrong = true;
        end_if_wrong(link);
        return;
    }
    if (status != CRPC_OK) {
        link_fail(link, &error);
        return;
    }
    link_task_start(&link->proof->expose, link, expose, exposed);
}

static void take_body(struct link *link, const struct link_word *word)
{
    const struct link_service *service = link->group->service;
    crpc_error error = {0};
    uint8_t expected[LINK_PROOF_BYTES];
    int32_t status = make(link, true, true, word->body, expected, &error);
    if (status != CRPC_OK) {
        link_fail(link, &error);
        return;
    }
    if (!proof_equal(word->proof, expected)) {
        link_violated(link, "%s", "the proof of its body is wrong");
        return;
    }
    const char *fault = service->body_fault(word->body);
    if (fault) {
        link_violated(link, "%s", fault);
        return;
    }
    memcpy(link->peer.body, word->body, sizeof(link->peer.body));
    if (service->attach(link, &error) != CRPC_OK) {
        link_fail(link, &error);
        return;
    }
    link->proof->heard_all = true;
    link_prove_forget_key(link);
    link_prove_send(link);
}

static void take_word(struct link *link, uint32_t number)
{
    struct link_proof *proof = link->proof;
    struct link_word word;
    bool exposing = proof->expose.under_way != NULL;
    if (number != proof->heard + 1 || number > LINK_WORDS || proof->wrong ||
        (exposing && proof->body_waits)) {
        link_violated(link, "word %u of the proof came after %u", number,
                      proof->heard + proof->body_waits);
        return;
    }
    if (exposing) { /* this side says its third word before it takes the peer's */
        proof->body_waits = true;
        return;
    }
    /* The peer may write while this is read. */
    const struct link_word *place = (const struct link_word *)(const void *)proof->pages;
    for (size_t i = 0; i < sizeof(word) / sizeof(uint64_t); i++) {
        ((uint64_t *)&word)[i] = wire_load((const uint64_t *)&place[proof->heard] + i);
    }
    static const uint8_t nothing[LINK_BODY_BYTES];
    if (word.zero != 0 ||
        (number != LINK_WORD_BODY && memcmp(word.body, nothing, sizeof(nothing)) != 0)) {
        link_violated(link, "%s", "reserved bytes of the proof are set");
        return;
    }
    proof->heard = number;
    switch (number) {
    case LINK_WORD_NONCE:
        take_nonce(link, &word);
        break;
    case LINK_WORD_PROOF:
        take_proof(link, &word);
        break;
    default:
        take_body(link, &word);
    }
}

static void lost_by_device(struct link *link, const struct nic_completion *completion)
{
    crpc_error error = {0};
    if (completion->status == NIC_ERROR_RETRY && link->proof->heard == 0) {
        error_set(&error, CRPC_E_UNREACHABLE, 0,
                  "the peer's device does not answer; has its side joined or accepted?");
    } else {
        error_set(&error, CRPC_E_DISCONNECTED, 0,
                  "connection lost while the keys were compared (vendor syndrome 0x%x)",
                  completion->vendor_syndrome);
    }
    error.vendor_syndrome = completion->vendor_syndrome;
    link_prove_lost(link, &error);
    link_fail(link, &error);
}

void link_prove_take(struct link *link, const struct nic_completion *completion)
{
    assert(link->state == CRPC_STATE_CONNECTING && link_proving(link));
    switch (completion->kind) {
    case NIC_COMPLETION_RECEIVE:
        link_prove_begin(link); /* the peer's word can be faster than rdma_cm's last message */
        if (!link->failing) {
            take_word(link, completion->immediate);
        }
        break;
    case NIC_COMPLETION_SEND:
        link_prove_send(link);
        end_if_wrong(link);
        break;
    default:
        lost_by_device(link, completion);
    }
}

void link_prove_lost(const struct link *link, crpc_error *error)
{
    if (link->proof->wrong) {
        wrong_key(error);
    }
}
