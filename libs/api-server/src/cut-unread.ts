import { CloudlessError, type Clock, type Timer } from '@cloudless/base';

/**
 * A reader that takes nothing for so long is not waited for any more. Less than the transport
 * itself allows, which can name no revision.
 */
export const MAX_UNREAD_MS = 20_000;

/**
 * Hands on the items of a watch as long as they are taken. A stream is asked for its next item only
 * when the one before has gone out, so that a reader who stops reading would keep the watch waiting
 * for ever: after {@link MAX_UNREAD_MS} it is ended and what it holds is freed. A reader that comes
 * back gets RESOURCE_EXHAUSTED with the revision to resume at; one that does not is the transport's
 * to cut.
 */
export function cutUnread<Item extends { readonly revision: bigint }>(
  items: AsyncIterable<Item>,
  clock: Clock,
): AsyncIterable<Item> {
  return {
    [Symbol.asyncIterator]: () => {
      const source = items[Symbol.asyncIterator]();
      let timer: Timer | undefined;
      let cut: CloudlessError | undefined;
      const onUnread = (revision: bigint): void => {
        cut = new CloudlessError('exhausted', unreadMessage(revision));
        source.return?.().catch(() => undefined);
      };
      return {
        next: async () => {
          timer?.cancel();
          if (cut !== undefined) throw cut;
          const result = await source.next();
          if (result.done === true) return result;
          const { revision } = result.value;
          timer = clock.setTimer(MAX_UNREAD_MS, () => onUnread(revision));
          return result;
        },
        return: async () => {
          timer?.cancel();
          await source.return?.();
          return { done: true, value: undefined };
        },
      };
    },
  };
}

function unreadMessage(revision: bigint): string {
  return (
    `nothing was read from this watch for ${MAX_UNREAD_MS / 1_000} s, so it was ended; ` +
    `go on with after_revision ${revision}, and read as it comes`
  );
}
