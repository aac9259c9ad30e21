import { PassThrough } from 'node:stream';
import { describe, expect, it } from '@jest/globals';
import type { ExecInput } from '@cloudless/runtime';
import { ExecInputSender } from './exec-input.js';
import { SpdyParser, type SpdyFrame } from './spdy.js';

async function* inputOf(...items: readonly ExecInput[]): AsyncGenerator<ExecInput> {
  yield* items;
}

/** Sends these items as input and returns the frames that reach the container runtime. */
async function send(
  items: readonly ExecInput[],
  tty?: { readonly columns: number; readonly rows: number },
): Promise<readonly SpdyFrame[]> {
  const socket = new PassThrough();
  const sender = new ExecInputSender({
    command: ['cat'],
    input: inputOf(...items),
    ...(tty === undefined ? {} : { tty }),
  });
  await sender.send(socket, 3, 9);
  return new SpdyParser().feed((socket.read() as Buffer | null) ?? Buffer.alloc(0));
}

const data = new Uint8Array([104, 105]);

describe('ExecInputSender.send', () => {
  it('sends data, then the end of the stream', async () => {
    expect(await send([{ kind: 'stdin', data }])).toEqual([
      { kind: 'data', streamId: 3, data },
      { kind: 'end', streamId: 3 },
    ]);
  });

  it('sends the end once when the input contains an end', async () => {
    expect(await send([{ kind: 'stdin', data }, { kind: 'end' }])).toEqual([
      { kind: 'data', streamId: 3, data },
      { kind: 'end', streamId: 3 },
    ]);
  });

  it('sends one end-of-file character as the end of the input of a terminal', async () => {
    expect(await send([{ kind: 'end' }], { columns: 80, rows: 24 })).toEqual([
      { kind: 'data', streamId: 3, data: new Uint8Array([4]) },
    ]);
  });

  it('sends a terminal size on the resize stream', async () => {
    const [size] = await send([{ kind: 'resize', columns: 90, rows: 30 }], {
      columns: 80,
      rows: 24,
    });
    expect(size).toEqual({
      kind: 'data',
      streamId: 9,
      data: new Uint8Array(Buffer.from('{"Width":90,"Height":30}')),
    });
  });
});
