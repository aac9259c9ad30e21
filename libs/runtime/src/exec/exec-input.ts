import type { ExecInput } from '../container-runtime.js';

/**
 * Subset of a socket that {@link writeWithBackpressure} needs; Node's sockets and streams have it.
 */
export interface FrameSink {
  readonly destroyed: boolean;
  write(frame: Uint8Array): boolean;
  once(event: 'drain' | 'close', listener: () => void): this;
  off(event: 'drain' | 'close', listener: () => void): this;
}

/** Writes a frame. Resolves when more data may be written or the sink is closed. */
export async function writeWithBackpressure(sink: FrameSink, frame: Uint8Array): Promise<void> {
  if (sink.destroyed || sink.write(frame)) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      sink.off('drain', done).off('close', done);
      resolve();
    };
    sink.once('drain', done).once('close', done);
  });
}

/** Converts complete input to streamed input of one piece. */
export async function* toSingleInput(data: Uint8Array): AsyncGenerator<ExecInput> {
  yield { kind: 'stdin', data };
}
