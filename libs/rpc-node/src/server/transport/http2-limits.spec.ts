import * as net from 'node:net';
import { serversOfTest } from '../testing/fixture.js';

const open = serversOfTest(afterEach);

const [HEADERS, RST_STREAM, SETTINGS, GOAWAY] = [1, 3, 4, 7];
const REFUSED_STREAM = 7;
const ENHANCE_YOUR_CALM = 11;

function encodeFrame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A header field in HPACK without compression (RFC 7541, section 6.2.2). */
function encodeField(name: string, value: string): Buffer {
  const text = (part: string): Buffer =>
    Buffer.concat([Buffer.from([part.length]), Buffer.from(part)]);
  return Buffer.concat([Buffer.from([0]), text(name), text(value)]);
}

/** The header block of a POST to an RPC. */
function encodeCallHead(): Buffer {
  return Buffer.concat([
    Buffer.from([0x83, 0x86]),
    encodeField(':path', '/cloudless.api.CoordinatorService/GetWorkload'),
    encodeField(':authority', 'localhost'),
    encodeField('content-type', 'application/grpc'),
  ]);
}

const call = (index: number): Buffer => encodeFrame(HEADERS, 4, index * 2 + 1, encodeCallHead());
const reset = (index: number): Buffer =>
  encodeFrame(RST_STREAM, 0, index * 2 + 1, Buffer.from([0, 0, 0, 8]));
const repeatFrames = (count: number, make: (index: number) => Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, (_, index) => make(index)));

/**
 * Sends the HTTP/2 preface and `bytes`. @returns The frames that arrive until `isEnough`, and
 * whether the server closed the connection.
 */
async function sendFrames(
  port: number,
  bytes: Buffer,
  isEnough: (frames: readonly { type: number; code: number }[]) => boolean,
) {
  const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
  socket.write(
    Buffer.concat([
      Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
      encodeFrame(SETTINGS, 0, 0, Buffer.alloc(0)),
      bytes,
    ]),
  );
  const frames: { type: number; code: number }[] = [];
  let pending = Buffer.alloc(0);
  const closed = await new Promise<boolean>((resolve) => {
    socket.once('close', () => resolve(true));
    socket.on('data', (chunk) => {
      pending = Buffer.concat([pending, chunk]);
      for (
        let size = 9;
        pending.length >= 9 && pending.length >= (size = 9 + pending.readUIntBE(0, 3));
        pending = pending.subarray(size)
      ) {
        const type = pending.readUInt8(3);
        const at = { [RST_STREAM]: 9, [GOAWAY]: 13 }[type];
        frames.push({ type, code: at === undefined ? 0 : pending.readUInt32BE(at) });
      }
      if (isEnough(frames)) resolve(false);
    });
  });
  socket.destroy();
  return { frames, closed };
}

const never = (): boolean => false;
const PING = encodeFrame(6, 0, 0, Buffer.alloc(8));
/** The reply to {@link PING}: the server has read everything sent before it. */
const pong = (frames: readonly { readonly type: number }[]): boolean =>
  frames.some(({ type }) => type === 6);

describe('HTTP/2 session limits', () => {
  it('destroy a session that resets more streams than resetBurst, and only then', async () => {
    const { address } = await open({ limits: { resetBurst: 50 } });
    const openAndReset = (count: number): Buffer =>
      repeatFrames(count, (index) => Buffer.concat([call(index), reset(index)]));
    expect(await sendFrames(address.port, openAndReset(200), never)).toMatchObject({
      closed: true,
    });
    const alive = Buffer.concat([openAndReset(50), PING]);
    const { closed } = await sendFrames(address.port, alive, pong);
    expect(closed).toBe(false);
  });

  it('refuse streams beyond maxConcurrentStreams, and destroy a session that keeps opening them', async () => {
    // nghttp2 refuses these streams and counts them as invalid frames. maxSessionRejectedStreams
    // counts only streams that Node refuses.
    const { address } = await open({
      limits: { maxConcurrentStreams: 5, maxSessionInvalidFrames: 10 },
    });
    const calls = (count: number): Buffer => repeatFrames(count, (index) => call(index));
    const { frames } = await sendFrames(
      address.port,
      calls(7),
      (seen) => countRefusals(seen) === 2,
    );
    expect(countRefusals(frames)).toBe(2);
    expect(await sendFrames(address.port, calls(60), never)).toMatchObject({ closed: true });
  });

  it('destroy a session with too many invalid frames', async () => {
    const { address } = await open({ limits: { maxSessionInvalidFrames: 10 } });
    // An upper-case field name is an error of its stream only (RFC 9113, section 8.2.1).
    const invalid = (index: number): Buffer =>
      encodeFrame(
        HEADERS,
        4,
        index * 2 + 1,
        Buffer.concat([encodeCallHead(), encodeField('Capital', 'x')]),
      );
    const { closed } = await sendFrames(
      address.port,
      Buffer.concat([repeatFrames(5, invalid), PING]),
      pong,
    );
    expect(closed).toBe(false);
    expect(await sendFrames(address.port, repeatFrames(100, invalid), never)).toMatchObject({
      closed: true,
    });
  });

  it('refuse streams of a session that holds too much memory, and destroy it when it continues', async () => {
    // Node counts the memory of nghttp2 and of its own stream objects. OverloadProtection counts
    // heads and bodies.
    const limits = { maxSessionMemoryMb: 1, maxConcurrentStreams: 10_000 };
    const patient = await open({ limits: { ...limits, maxSessionRejectedStreams: 10_000 } });
    const calls = (count: number): Buffer => repeatFrames(count, (index) => call(index));
    const { frames, closed } = await sendFrames(
      patient.address.port,
      Buffer.concat([calls(3_000), PING]),
      pong,
    );
    expect({ closed, refused: countRefusals(frames) > 100 }).toEqual({
      closed: false,
      refused: true,
    });
    const impatient = await open({ limits: { ...limits, maxSessionRejectedStreams: 10 } });
    expect(await sendFrames(impatient.address.port, calls(3_000), never)).toMatchObject({
      closed: true,
    });
  });
});

function countRefusals(
  frames: readonly { readonly type: number; readonly code: number }[],
): number {
  return frames.filter(
    ({ type, code }) =>
      type === RST_STREAM && (code === REFUSED_STREAM || code === ENHANCE_YOUR_CALM),
  ).length;
}
