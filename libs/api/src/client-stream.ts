import { CloudlessError, type Clock, type Timer } from '@cloudless/base';
import type { TunnelFrame } from './gen.js';

/** A client that streams has to say at once what it wants, milliseconds. */
export const FIRST_MESSAGE_WITHIN_MS = 10_000;

/**
 * The first message of a call whose client streams.
 * @throws kind `deadline` when it does not come within {@link FIRST_MESSAGE_WITHIN_MS}.
 */
export async function firstMessage<Item>(
  items: AsyncIterator<Item>,
  clock: Clock,
): Promise<Item | undefined> {
  let timer: Timer | undefined;
  try {
    const first = await new Promise<IteratorResult<Item>>((resolve, reject) => {
      timer = clock.setTimer(FIRST_MESSAGE_WITHIN_MS, () =>
        reject(
          new CloudlessError(
            'deadline',
            `the first message did not come within ${FIRST_MESSAGE_WITHIN_MS} ms`,
          ),
        ),
      );
      items.next().then(resolve, reject);
    });
    return first.done === true ? undefined : first.value;
  } finally {
    timer?.cancel();
  }
}

/** How much of a tunnel's window a frame takes: what it carries, and something for itself. */
export function windowCostOf({ frame }: TunnelFrame): number {
  if (frame.case !== 'execInput' && frame.case !== 'forwardInput') return FRAME_BYTES;
  const { request } = frame.value;
  return (
    FRAME_BYTES + (request.case === 'stdin' || request.case === 'data' ? request.value.length : 0)
  );
}

const FRAME_BYTES = 256;
