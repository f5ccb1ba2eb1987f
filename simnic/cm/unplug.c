/* unplug.c: what becomes of identifiers when their device is taken out. */
#include "simnic/cm/internal.h"

bool cm_rail_unplugged(struct cm *cm, int rail)
{
    return cm->host.unplugged && cm->host.unplugged(cm->host.context, rail);
}

/* Its peer hears nothing: there is no device that could send. One whose request the program has not read is reported with the request
 * alone, and every command about it fails. */
static void unplug(struct cm_id *id)
{
    id->unplugged = true;
    talk_end(id);
    if (id->port_entry != PORT_NONE) {
        ports_release(&cm_of(id)->host, id->port_entry);
        id->port_entry = PORT_NONE;
    }
    event_report(id, EVENT_DEVICE_REMOVAL, 0);
}

void cm_unplug(struct cm *cm, int rail)
{
    pthread_mutex_lock(&cm->lock);
    for (uint32_t i = 0; i < cm->id_limit; i++) {
        struct cm_id *id = cm->ids[i];
        if (id && id->rail == rail && !id->unplugged) {
            unplug(id);
        }
    }
    pthread_mutex_unlock(&cm->lock);
}
