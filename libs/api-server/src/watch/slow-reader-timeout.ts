import { CloudlessError, type Clock, type Timer } from '@cloudless/base';

/**
 * Time without a read after which a watch is closed, milliseconds. Shorter than the time limit of
 * the transport, whose error cannot contain a revision.
 */
export const SLOW_READER_TIMEOUT_MS = 20_000;

/**
 * Closes a watch whose client has read nothing for {@link SLOW_READER_TIMEOUT_MS}, and frees its
 * resources. The RPC server requests the next item only after the previous item was sent, so
 * without the timeout, a client that stops reading would keep the watch open for ever.
 * @returns The items. Fails with kind `exhausted` and the revision to resume at when the client
 *   reads again after the timeout.
 */
export function withSlowReaderTimeout<Item extends { readonly revision: bigint }>(
  items: AsyncIterable<Item>,
  clock: Clock,
): AsyncIterable<Item> {
  return {
    [Symbol.asyncIterator]: () => {
      const source = items[Symbol.asyncIterator]();
      let timer: Timer | undefined;
      let timeoutError: CloudlessError | undefined;
      const onTimeout = (revision: bigint): void => {
        timeoutError = new CloudlessError('SLOW_READER', formatTimeoutMessage(revision));
        source.return?.().catch(() => undefined);
      };
      return {
        next: async () => {
          timer?.cancel();
          if (timeoutError !== undefined) throw timeoutError;
          const result = await source.next();
          if (result.done === true) return result;
          const { revision } = result.value;
          timer = clock.setTimer(SLOW_READER_TIMEOUT_MS, () => onTimeout(revision));
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

function formatTimeoutMessage(revision: bigint): string {
  return (
    `the watch was closed because the client read nothing for ${SLOW_READER_TIMEOUT_MS / 1_000} s; ` +
    `resume with after_revision ${revision}`
  );
}
