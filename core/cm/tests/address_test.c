/* address_test.c: "host:port" in every shape people write it. Runs without RDMA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <netinet/in.h>

#include "cm/address.h"

struct good {
    const char *text;
    enum address_use use;
    const char *host;
    uint16_t port;
    bool any;
    bool bracketed;
};

static void test_good(void **state)
{
    static const struct good cases[] = {
        {"192.0.2.1:7471", ADDRESS_TO_CONNECT, "192.0.2.1", 7471, false, false},
        {"rail0:1", ADDRESS_TO_CONNECT, "rail0", 1, false, false},
        {"a.b-c.example:65535", ADDRESS_TO_CONNECT, "a.b-c.example", 65535, false, false},
        {"[2001:db8::1]:7471", ADDRESS_TO_CONNECT, "2001:db8::1", 7471, false, true},
        {"[fe80::1%rail0]:7471", ADDRESS_TO_CONNECT, "fe80::1%rail0", 7471, false, true},
        {"host:00080", ADDRESS_TO_CONNECT, "host", 80, false, false},
        {"*:7471", ADDRESS_TO_LISTEN, "*", 7471, true, false},
        {"*:0", ADDRESS_TO_LISTEN, "*", 0, true, false},
        {"[::]:0", ADDRESS_TO_LISTEN, "::", 0, false, true},
        {"0.0.0.0:0", ADDRESS_TO_LISTEN, "0.0.0.0", 0, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct address_name name;
        crpc_error error = {.struct_size = sizeof(error)};
        assert_int_equal(address_parse(cases[i].text, cases[i].use, &name, &error), CRPC_OK);
        assert_string_equal(name.host, cases[i].host);
        assert_int_equal(name.port, cases[i].port);
        assert_int_equal(name.any, cases[i].any);
        assert_int_equal(name.bracketed, cases[i].bracketed);
    }
}

struct bad {
    const char *text;
    enum address_use use;
    const char *says;
};

static void test_bad(void **state)
{
    static const struct bad cases[] = {
        {"", ADDRESS_TO_CONNECT, "no port"},
        {"host", ADDRESS_TO_CONNECT, "no port"},
        {"host:", ADDRESS_TO_CONNECT, "port number"},
        {"host:http", ADDRESS_TO_CONNECT, "port number"},
        {"host:12x", ADDRESS_TO_CONNECT, "port number"},
        {"host:-1", ADDRESS_TO_CONNECT, "port number"},
        {"host:+1", ADDRESS_TO_CONNECT, "port number"},
        {"host: 1", ADDRESS_TO_CONNECT, "port number"},
        {"host:65536", ADDRESS_TO_CONNECT, "1 to 65535"},
        {"host:4294967297", ADDRESS_TO_CONNECT, "1 to 65535"},
        {"host:99999999999999999999999999", ADDRESS_TO_CONNECT, "1 to 65535"},
        {"host:0", ADDRESS_TO_CONNECT, "only for listening"},
        {":7471", ADDRESS_TO_CONNECT, "no host"},
        {":7471", ADDRESS_TO_LISTEN, "*:port"},
        {"*:7471", ADDRESS_TO_CONNECT, "only for listening"},
        {"2001:db8::1:7471", ADDRESS_TO_CONNECT, "in brackets"},
        {"::1", ADDRESS_TO_CONNECT, "in brackets"},
        {"[2001:db8::1]", ADDRESS_TO_CONNECT, "]:port"},
        {"[2001:db8::1]7471", ADDRESS_TO_CONNECT, "]:port"},
        {"[2001:db8::1:7471", ADDRESS_TO_CONNECT, "]:port"},
        {"[]:7471", ADDRESS_TO_CONNECT, "no host"},
        {"[192.0.2.1]:7471", ADDRESS_TO_CONNECT, "IPv6 addresses only"},
        {"[*]:7471", ADDRESS_TO_LISTEN, "IPv6 addresses only"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct address_name name;
        crpc_error error = {.struct_size = sizeof(error)};
        assert_int_equal(address_parse(cases[i].text, cases[i].use, &name, &error), CRPC_E_INVALID);
        assert_non_null(strstr(error.message, cases[i].says));
    }
}

static void test_length(void **state)
{
    char text[600];
    struct address_name name;
    crpc_error error = {.struct_size = sizeof(error)};
    (void)state;
    memset(text, 'a', sizeof(text));
    strcpy(text + 255, ":1");
    assert_int_equal(address_parse(text, ADDRESS_TO_CONNECT, &name, &error), CRPC_OK);
    assert_int_equal(strlen(name.host), 255);
    memset(text, 'a', sizeof(text));
    strcpy(text + 256, ":1");
    assert_int_equal(address_parse(text, ADDRESS_TO_CONNECT, &name, &error), CRPC_E_INVALID);
    memset(text, 'a', sizeof(text));
    strcpy(text + 590, ":1");
    assert_int_equal(address_parse(text, ADDRESS_TO_CONNECT, &name, NULL), CRPC_E_INVALID);
}

/* Digits are turned into an address at once; a name is left to the resolver. */
static void test_numeric(void **state)
{
    struct address_name name;
    struct addrinfo *result;
    (void)state;

    assert_int_equal(address_parse("192.0.2.1:7471", ADDRESS_TO_CONNECT, &name, NULL), CRPC_OK);
    assert_int_equal(address_numeric(&name, &result), 0);
    struct sockaddr_in *four = (struct sockaddr_in *)result->ai_addr;
    assert_int_equal(four->sin_family, AF_INET);
    assert_int_equal(ntohs(four->sin_port), 7471);
    assert_int_equal(ntohl(four->sin_addr.s_addr), 0xc0000201);
    assert_null(result->ai_next);
    freeaddrinfo(result);

    assert_int_equal(address_parse("[2001:db8::1]:7471", ADDRESS_TO_CONNECT, &name, NULL), CRPC_OK);
    assert_int_equal(address_numeric(&name, &result), 0);
    assert_int_equal(result->ai_family, AF_INET6);
    freeaddrinfo(result);

    assert_int_equal(address_parse("rail0:7471", ADDRESS_TO_CONNECT, &name, NULL), CRPC_OK);
    assert_int_equal(address_numeric(&name, &result), EAI_NONAME);
}

static void test_scope(void **state)
{
    struct address_name name;
    struct addrinfo *result;
    char text[ADDRESS_TEXT_BYTES];
    (void)state;
    assert_int_equal(address_parse("[fe80::1%lo]:7471", ADDRESS_TO_CONNECT, &name, NULL), CRPC_OK);
    assert_int_equal(address_numeric(&name, &result), 0);
    assert_int_not_equal(((struct sockaddr_in6 *)result->ai_addr)->sin6_scope_id, 0);
    address_format(result->ai_addr, text, sizeof(text));
    assert_string_equal(text, "[fe80::1%lo]:7471");
    freeaddrinfo(result);
}

static void test_format(void **state)
{
    static const char *const texts[] = {"192.0.2.1:1", "[2001:db8::1]:65535", "[::1]:80",
                                        "255.255.255.255:65535"};
    char text[ADDRESS_TEXT_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct address_name name;
        struct addrinfo *result;
        assert_int_equal(address_parse(texts[i], ADDRESS_TO_CONNECT, &name, NULL), CRPC_OK);
        assert_int_equal(address_numeric(&name, &result), 0);
        address_format(result->ai_addr, text, sizeof(text));
        assert_string_equal(text, texts[i]);
        freeaddrinfo(result);
    }
    struct sockaddr_storage none = {0};
    address_format((struct sockaddr *)&none, text, sizeof(text));
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),    cmocka_unit_test(test_bad),   cmocka_unit_test(test_length),
        cmocka_unit_test(test_numeric), cmocka_unit_test(test_scope), cmocka_unit_test(test_format),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
