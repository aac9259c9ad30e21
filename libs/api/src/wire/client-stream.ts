import { CloudlessError, type Clock, type Timer } from '@cloudless/base';
import type { TunnelFrame } from '../gen.js';

/**
 * Time within which a streaming client must send its first message, milliseconds. A client that
 * sends none would keep the call open for ever.
 */
export const FIRST_MESSAGE_TIMEOUT_MS = 10_000;

/**
 * Reads the first message of a client stream.
 * @returns Undefined when the client closed its side without a message.
 * @throws kind `deadline` when no message arrives within {@link FIRST_MESSAGE_TIMEOUT_MS}.
 */
export async function readFirstMessage<Item>(
  items: AsyncIterator<Item>,
  clock: Clock,
): Promise<Item | undefined> {
  let timer: Timer | undefined;
  try {
    const first = await new Promise<IteratorResult<Item>>((resolve, reject) => {
      timer = clock.setTimer(FIRST_MESSAGE_TIMEOUT_MS, () =>
        reject(
          new CloudlessError(
            'deadline',
            `the first message did not come within ${FIRST_MESSAGE_TIMEOUT_MS} ms`,
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

/**
 * Returns the bytes by which a frame reduces the window of a tunnel: its payload plus an overhead.
 */
export function computeWindowCost({ frame }: TunnelFrame): number {
  if (frame.case !== 'execInput' && frame.case !== 'forwardInput') return FRAME_BYTES;
  const { request } = frame.value;
  return (
    FRAME_BYTES + (request.case === 'stdin' || request.case === 'data' ? request.value.length : 0)
  );
}

/** Overhead of each frame in memory, so that many small frames also exhaust the window. */
const FRAME_BYTES = 256;
