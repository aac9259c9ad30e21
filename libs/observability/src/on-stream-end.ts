/** Why the items of a stream ended early. */
export interface StreamFailure {
  readonly reason: unknown;
}

/**
 * Returns the same items. Calls `onEnd` once: when the items end or fail, or their reader leaves.
 * @param read - Makes each read of the next item. Default: reads directly.
 */
export function onStreamEnd<Item>(
  items: AsyncIterable<Item>,
  onEnd: (failure: StreamFailure | undefined) => void,
  read: <Result>(next: () => Result) => Result = (next) => next(),
): AsyncIterable<Item> {
  let hasEnded = false;
  const callOnEnd = (failure?: StreamFailure): void => {
    if (!hasEnded) onEnd(failure);
    hasEnded = true;
  };
  return {
    [Symbol.asyncIterator]: () => {
      const iterator = items[Symbol.asyncIterator]();
      return {
        next: async () => {
          try {
            const result = await read(() => iterator.next());
            if (result.done === true) callOnEnd();
            return result;
          } catch (reason) {
            callOnEnd({ reason });
            throw reason;
          }
        },
        return: async (value?: unknown) => {
          callOnEnd();
          return (await iterator.return?.(value)) ?? { done: true, value };
        },
      };
    },
  };
}
