/* kill.c: see kill.h. */
#include "kill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 0 = there is none. The lines of a queue pair are in this order. */
static unsigned long find(uint32_t rail)
{
    char line[512], wanted[32];
    unsigned long number = 0, found = 0;
    bool here = false;
    const char *at;
    snprintf(wanted, sizeof(wanted), "\"rail\": %u,", rail);
    snprintf(line, sizeof(line), "'%s' ctl stats --json", getenv("TEST_SIMNIC"));
    FILE *output = popen(line, "r");
    while (output && fgets(line, sizeof(line), output)) {
        if ((at = strstr(line, "\"qpn\": "))) {
            number = strtoul(at + strlen("\"qpn\": "), NULL, 10);
        } else if (strstr(line, "\"rail\": ")) {
            here = strstr(line, wanted);
        } else if (here && strstr(line, "\"state\": \"RTS\"")) {
            found = number;
        }
    }
    return output && pclose(output) == 0 ? found : 0;
}

bool kill_queue_pair(uint32_t rail)
{
    char command[256];
    unsigned long number = find(rail);
    snprintf(command, sizeof(command), "'%s' ctl fault kill=%lu > /dev/null", getenv("TEST_SIMNIC"),
             number);
    return number != 0 && system(command) == 0;
}
