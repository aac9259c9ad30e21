import type { ExecInput } from './container-runtime.js';

/** As much of a socket as {@link writeInTurn} needs; Node's sockets and streams have it. */
export interface FrameSink {
  readonly destroyed: boolean;
  write(frame: Uint8Array): boolean;
  once(event: 'drain' | 'close', listener: () => void): this;
  off(event: 'drain' | 'close', listener: () => void): this;
}

/** Writes a frame. Resolves when more may be sent, or never will be. */
export async function writeInTurn(sink: FrameSink, frame: Uint8Array): Promise<void> {
  if (sink.destroyed || sink.write(frame)) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      sink.off('drain', done).off('close', done);
      resolve();
    };
    sink.once('drain', done).once('close', done);
  });
}

/** All of a command's input as one piece. */
export async function* wholeInput(data: Uint8Array): AsyncGenerator<ExecInput> {
  yield { kind: 'stdin', data };
}
