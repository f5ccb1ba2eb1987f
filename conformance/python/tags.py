"""tags.py: the verbs of receives with tags (TM-SRQs), and of messages for them. queues.py has those of all queues."""
import asyncio

from queues import INDEX_BITS, Post
from words import event, payload, status_of

import copyrpc

ALL = copyrpc.TAG_MASK_ALL


class TaggedPost(Post):
    """Messages, each a header and its payload."""

    def __init__(self, id, region, offset, length, count, step, summary, seed, tag, tag_step, context):
        size = copyrpc.TAG_HEADER_BYTES + length
        super().__init__("send", id, region, offset, size, (), (), count, step, summary)
        for index in range(count):
            (part,) = self.slices(index)
            part.memory[:] = copyrpc.tag_header(tag + index * tag_step, context) + payload(length, seed + index)


class Tags:
    """What a Runner has of them. `tag_works` is what takes a receive with a tag back, by its number."""

    def do_tags_open(self, name, receives, receive_pieces=0, tags=0):
        options = copyrpc.QueueOptions(receives=receives, receive_pieces=receive_pieces, tags=tags)
        self.name_queue(name, self.context.tagged_queue(options))

    def do_send_tagged(self, queue, id, tag, region, count=1, tag_step=0, context=0, length=0, seed=0, offset=0, step=None, summary=0):
        post = TaggedPost(id, region, offset, length, count, step, summary, seed, tag, tag_step, context)
        if self.arrays:
            return self.submit(queue, post, [{}] * count, {})
        for index in range(count):
            self.begin(self.working(post, index, queue.asend(post.named(index))))

    def do_post_tag(self, queue, id, tag, region, mask=ALL, count=1, tag_step=0, length=0, offset=0, step=None, summary=0):
        post = Post("tag_add", id, region, offset, length, (), (), count, step, summary)
        tags = [tag + index * tag_step for index in range(count)]
        for index in range(count):
            self.tag_works[id + index] = len(self.posts) << INDEX_BITS | index
        if self.arrays:
            return self.submit(queue, post, [{"remote": tag, "operand": mask} for tag in tags], {})
        for index, tag in enumerate(tags):
            try:
                work = queue.post_receive_tag(post.named(index), tag, mask)
                self.tag_works[id + index] = work
                self.begin(self.working(post, index, self.ended(work)))
            except copyrpc.NoRoom:  # waits for some, where its task is what takes it back
                self.tag_works[id + index] = self.begin(self.working(post, index, queue.areceive_tag(post.named(index), tag, mask)))
            except Exception as error:
                post.tell(index, status_of(error), {})

    async def ended(self, work):
        while not work.test():
            await asyncio.sleep(0.002)
        return work.wait()

    def do_remove_tag(self, queue, id, of):
        if self.arrays:
            return self.submit(queue, Post("tag_remove", id, None, 0, 0, (), ()), [{"operand": self.tag_works.get(of, ALL >> 1)}], {})
        self.begin(self.answering(id, self.removing(self.tag_works.get(of)), "CRPC_E_NOT_FOUND"))

    @staticmethod
    async def removing(work):
        if isinstance(work, copyrpc.TagWork):
            return await work.aremove()
        return work is not None and work.cancel()

    def do_sync_tags(self, queue, id):
        if self.arrays:
            return self.submit(queue, Post("tag_sync", id, None, 0, 0, (), ()), [{}], {})
        self.begin(self.answering(id, queue.asynchronize(), "CRPC_E_BUSY"))

    @staticmethod
    async def answering(id, answer, otherwise):
        try:
            status = "CRPC_OK" if await answer else otherwise
        except (Exception, asyncio.CancelledError) as error:
            status = status_of(error)
        event("completed", id=id, status=status)

    @staticmethod
    def unexpected_fields(post, index):
        """Of a message whose header lies in its receive."""
        kind, tag, context = copyrpc.read_tag_header(post.slices(index)[0].memory)
        return {"unexpected": True, "tag": tag, "context": context}
