import type { ExecInput } from '../container-runtime.js';

/**
 * The members of a socket that {@link writeWithBackpressure} needs. Sockets and writable streams of
 * Node.js have them.
 */
export interface FrameSink {
  readonly destroyed: boolean;
  write(frame: Uint8Array): boolean;
  once(event: 'drain' | 'close', listener: () => void): this;
  off(event: 'drain' | 'close', listener: () => void): this;
}

/**
 * Writes a frame. Resolves when more data may be written, or when the sink is closed: the frame is
 * then lost without an error.
 */
export async function writeWithBackpressure(sink: FrameSink, frame: Uint8Array): Promise<void> {
  if (sink.destroyed || sink.write(frame)) return;
  await new Promise<void>((resolve) => {
    const onReady = (): void => {
      sink.off('drain', onReady).off('close', onReady);
      resolve();
    };
    sink.once('drain', onReady).once('close', onReady);
  });
}

/** Converts complete input to streamed input of one piece. */
export async function* toSingleInput(data: Uint8Array): AsyncGenerator<ExecInput> {
  yield { kind: 'stdin', data };
}
