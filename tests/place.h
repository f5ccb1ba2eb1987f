/* place.h: where a test that needs a NIC runs: in the VM on Soft-RoCE (the default), or under
 * `simnic run`, or on a NIC of the tester's. The environment says:
 *
 *   TEST_DEVICE, TEST_DEVICE1      device of each rail: rxe0, rxe1
 *   TEST_ADDRESS, TEST_ADDRESS1    IPv4 address of each: 10.99.0.1, 10.99.1.1
 *   TEST_ADDRESS6                  IPv6 address of the first, in brackets: [fd10:99::1]
 *   TEST_NAME                      a host name of the first: rail0
 *   TEST_DRIVER                    driver under test: verbs or mlx5
 *   TEST_COMPRESSION               1 = with compressed completions, 2 = with those of the enhanced layout
 *   TEST_INITIATORS                of contexts whose endpoints connect by DC; 0 = they connect by RC
 *   TEST_LINK                      what links the devices have: ethernet, or ib; as SIMNIC_LINK says by default
 *   TEST_LINK1_DOWN, TEST_LINK1_UP commands for the second rail's link; in the VM also TEST_LINK0_*
 */
#ifndef TESTS_PLACE_H
#define TESTS_PLACE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline const char *place_value(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value ? value : otherwise;
}

/* simnic registers memory without pinning it, so that it works within any RLIMIT_MEMLOCK. */
static inline int place_pins_memory(void)
{
    return getenv("SIMNIC_SESSION") == NULL;
}

/* The 5 s that are the default may pass on a busy machine, and few tests are about them. */
#define PLACE_CONNECT_TIMEOUT_NS UINT64_C(60000000000)

/* For how long the transport repeats what is not answered, 4.096 us * 2^n each time; 0: as by default, 67 ms. simnic does not
 * count the time that a peer has no processor. Soft-RoCE does, and seven times 268 ms outlast a pause of the machine. */
static inline unsigned place_retry_timeout(void)
{
    return getenv("TEST_SIMNIC") ? 0 : 16;
}

static inline const char *place_device(int rail)
{
    return rail ? place_value("TEST_DEVICE1", "rxe1") : place_value("TEST_DEVICE", "rxe0");
}

static inline const char *place_address(int rail)
{
    return rail ? place_value("TEST_ADDRESS1", "10.99.1.1")
                : place_value("TEST_ADDRESS", "10.99.0.1");
}

static inline const char *place_address6(void)
{
    return place_value("TEST_ADDRESS6", "[fd10:99::1]");
}

static inline const char *place_driver(void)
{
    return place_value("TEST_DRIVER", "verbs");
}

static inline int place_compresses(void)
{
    return atoi(place_value("TEST_COMPRESSION", "0"));
}

/* What a test that says nothing of features asks for in the options of its contexts. */
#define PLACE_FEATURES (place_compresses() ? CRPC_FEATURE_CQE_COMPRESSION : 0)

/* On InfiniBand a path has a GRH only where it must, and IP addresses are no GIDs. */
static inline int place_is_infiniband(void)
{
    return strncmp(place_value("TEST_LINK", place_value("SIMNIC_LINK", "")), "ib", 2) == 0;
}

/* Whether packets within a subnet have a GRH: on InfiniBand only where the ports require one. */
static inline int place_has_grh(void)
{
    return !place_is_infiniband() ||
           strstr(place_value("TEST_LINK", place_value("SIMNIC_LINK", "")), ",grh") != NULL;
}

/* What a test of endpoints gives its contexts. Endpoints that share initiators have no retry options of their own. */
static inline unsigned place_initiators(void)
{
    return (unsigned)atoi(place_value("TEST_INITIATORS", "0"));
}

/* True if the devices are such that the direct driver can open them. */
static inline int place_is_mlx5(void)
{
    return strncmp(place_device(0), "mlx5", 4) == 0;
}

static inline const char *place_name(void)
{
    return place_value("TEST_NAME", "rail0");
}

/* "ADDRESS:PORT" of a rail; good until the eighth call after. */
static inline const char *place_at(int rail, const char *port)
{
    static char text[8][64];
    static unsigned next;
    char *place = text[next++ % 8];
    snprintf(place, sizeof(text[0]), "%s:%s", place_address(rail), port);
    return place;
}

#endif
