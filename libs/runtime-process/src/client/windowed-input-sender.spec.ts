import { settle } from '@cloudless/base/testing';
import type { ExecInput } from '@cloudless/runtime';
import { FrameParser } from '../wire/frames.js';
import { WindowedInputSender, type InputSocket } from './windowed-input-sender.js';

const typed = (text: string): ExecInput => ({
  kind: 'stdin',
  data: new TextEncoder().encode(text),
});
const RESIZE: ExecInput = { kind: 'resize', columns: 100, rows: 30 };

/** Sends input over a socket that records the frames. */
function startSending(input: AsyncIterable<ExecInput>) {
  const frames: string[] = [];
  const parser = new FrameParser();
  const state = { destroyed: false };
  const socket: InputSocket = {
    get destroyed() {
      return state.destroyed;
    },
    write: (bytes) => {
      for (const { kind, payload } of parser.feed(Buffer.from(bytes)))
        frames.push(kind === 'stdin' ? `stdin ${payload.length}` : kind);
      return true;
    },
    once: () => socket,
    off: () => socket,
    destroy: () => (state.destroyed = true),
  };
  const sender = new WindowedInputSender(socket, { input }, true);
  const sending = sender.send();
  return { frames, sender, sending, socket };
}

async function* inputOf(...items: readonly ExecInput[]): AsyncGenerator<ExecInput> {
  yield* items;
}

describe('WindowedInputSender', () => {
  it('sends a change of the terminal size while the window is closed, and the input later', async () => {
    const { frames, sender, sending } = startSending(
      inputOf(typed('abc'), typed('de'), RESIZE, typed('f')),
    );
    await settle();
    expect(frames).toEqual(['resize']);
    sender.addWindow(1024);
    await sending;
    expect(frames).toEqual(['resize', 'stdin 3', 'stdin 2', 'stdin 1', 'stdinEnd']);
  });

  it('reads no more than 64 KiB and one item ahead of the window', async () => {
    let read = 0;
    const endless = (async function* (): AsyncGenerator<ExecInput> {
      for (;;) {
        read += 1;
        yield { kind: 'stdin', data: new Uint8Array(16 * 1024) };
      }
    })();
    const { frames, sender, socket } = startSending(endless);
    await settle();
    expect({ read, frames }).toEqual({ read: 4, frames: [] });
    sender.addWindow(16 * 1024);
    await settle();
    expect({ read, frames }).toEqual({ read: 5, frames: ['stdin 16384'] });
    socket.destroy();
    sender.stop();
  });

  it('keeps no empty input and nothing after the end while the window is closed', async () => {
    const { sender, sending, socket } = startSending(
      inputOf(
        ...Array.from({ length: 1_000 }, () => typed('')),
        typed('a'),
        ...Array.from({ length: 1_000 }, (): ExecInput => ({ kind: 'end' })),
        typed('b'),
      ),
    );
    await settle();
    expect(sender['waiting']).toHaveLength(2);
    socket.destroy();
    sender.stop();
    await sending;
  });

  it('sends no empty frames, and nothing after the end but a terminal size', async () => {
    const { frames, sender, sending } = startSending(
      inputOf(
        typed(''),
        typed('a'),
        typed(''),
        { kind: 'end' },
        { kind: 'end' },
        typed('b'),
        RESIZE,
      ),
    );
    await settle();
    sender.addWindow(1024);
    await sending;
    expect(frames).toEqual(['resize', 'stdin 1', 'stdinEnd']);
  });

  it('splits a large item into chunks of 64 KiB', async () => {
    const data = new Uint8Array(150 * 1024);
    const { frames, sender, sending } = startSending(inputOf({ kind: 'stdin', data }));
    sender.addWindow(1024 * 1024);
    await sending;
    expect(frames).toEqual(['stdin 65536', 'stdin 65536', 'stdin 22528', 'stdinEnd']);
  });

  it('closes the connection when the input of the caller fails', async () => {
    const failing = (async function* (): AsyncGenerator<ExecInput> {
      yield typed('a');
      throw new Error('the caller has gone');
    })();
    const { sender, sending, socket } = startSending(failing);
    await sending;
    expect(socket.destroyed).toBe(true);
    expect(sender.failure).toMatchObject({ reason: { message: 'the caller has gone' } });
  });
});
