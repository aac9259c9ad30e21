import * as net from 'node:net';
import * as tls from 'node:tls';
import { TestCluster, TestServerTls, type TestCredential } from '../../testing/test-cluster.js';
import type { RpcServerOptions } from '../options.js';
import { serversOfTest } from '../testing/fixture.js';

const openServer = serversOfTest(afterEach);

/** How clients of a server connect. */
interface ServerUnderAttack {
  readonly port: number;
  readonly secure: boolean;
}

/** Frame types (RFC 9113, section 6). */
const [HEADERS, RST_STREAM, SETTINGS, GOAWAY] = [1, 3, 4, 7];
/** Error codes (RFC 9113, section 7). */
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

/** Encodes a header field in HPACK without compression (RFC 7541, section 6.2.2). */
function encodeField(name: string, value: string): Buffer {
  const text = (part: string): Buffer =>
    Buffer.concat([Buffer.from([part.length]), Buffer.from(part)]);
  return Buffer.concat([Buffer.from([0]), text(name), text(value)]);
}

/** Encodes the header block of a POST to an RPC. */
function encodeCallHead(): Buffer {
  return Buffer.concat([
    Buffer.from([0x83, 0x86]),
    encodeField(':path', '/cloudless.api.CoordinatorService/GetWorkload'),
    encodeField(':authority', 'localhost'),
    encodeField('content-type', 'application/grpc'),
  ]);
}

/** Encodes the HEADERS frame that opens stream `2 * index + 1`. */
const call = (index: number): Buffer => encodeFrame(HEADERS, 4, index * 2 + 1, encodeCallHead());
/** Encodes the RST_STREAM frame (CANCEL) of stream `2 * index + 1`. */
const reset = (index: number): Buffer =>
  encodeFrame(RST_STREAM, 0, index * 2 + 1, Buffer.from([0, 0, 0, 8]));
const repeatFrames = (count: number, make: (index: number) => Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, (_, index) => make(index)));

/**
 * Sends the HTTP/2 preface and `bytes`.
 * @param isEnough - Ends the wait when true; otherwise the wait ends when the server closes.
 * @returns The received frames with their error codes, and true when the server closed the
 *   connection.
 */
async function sendFrames(
  { port, secure }: ServerUnderAttack,
  bytes: Buffer,
  isEnough: (frames: readonly { type: number; code: number }[]) => boolean,
) {
  const options = { port, host: '127.0.0.1' };
  const socket = secure
    ? tls.connect({ ...options, ALPNProtocols: ['h2'], rejectUnauthorized: false })
    : net.connect(options);
  socket.on('error', () => undefined);
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
        const codeOffset = { [RST_STREAM]: 9, [GOAWAY]: 13 }[type];
        frames.push({
          type,
          code: codeOffset === undefined ? 0 : pending.readUInt32BE(codeOffset),
        });
      }
      if (isEnough(frames)) resolve(false);
    });
  });
  socket.destroy();
  return { frames, closed };
}

const never = (): boolean => false;
const PING = encodeFrame(6, 0, 0, Buffer.alloc(8));
/** Returns true after the reply to {@link PING}: the server has then read all earlier frames. */
const hasPingReply = (frames: readonly { readonly type: number }[]): boolean =>
  frames.some(({ type }) => type === 6);

describe.each(['plaintext', 'TLS'])('HTTP/2 session limits over %s', (transport) => {
  const secure = transport === 'TLS';
  let credential: TestCredential;
  beforeAll(async () => {
    credential = await (await TestCluster.create()).issueServer();
  });
  const open = async (options: Partial<RpcServerOptions>): Promise<ServerUnderAttack> => {
    const { address } = await openServer({
      ...options,
      ...(secure ? { tls: new TestServerTls(credential) } : {}),
    });
    return { port: address.port, secure };
  };

  it('destroy a session that resets more streams than resetBurst, but none that resets fewer', async () => {
    const server = await open({ limits: { resetBurst: 50 } });
    const openAndReset = (count: number): Buffer =>
      repeatFrames(count, (index) => Buffer.concat([call(index), reset(index)]));
    expect(await sendFrames(server, openAndReset(200), never)).toMatchObject({
      closed: true,
    });
    const alive = Buffer.concat([openAndReset(50), PING]);
    const { closed } = await sendFrames(server, alive, hasPingReply);
    expect(closed).toBe(false);
  });

  it('refuse streams above maxConcurrentStreams, and destroy a session that opens many of them', async () => {
    // nghttp2 refuses these streams and counts them as invalid frames. maxSessionRejectedStreams
    // counts only streams that Node refuses.
    const server = await open({
      limits: { maxConcurrentStreams: 5, maxSessionInvalidFrames: 10 },
    });
    const calls = (count: number): Buffer => repeatFrames(count, (index) => call(index));
    const { frames } = await sendFrames(server, calls(7), (seen) => countRefusals(seen) === 2);
    expect(countRefusals(frames)).toBe(2);
    expect(await sendFrames(server, calls(60), never)).toMatchObject({ closed: true });
  });

  it('destroy a session with more invalid frames than maxSessionInvalidFrames', async () => {
    const server = await open({ limits: { maxSessionInvalidFrames: 10 } });
    // An upper-case field name is an error of its stream only (RFC 9113, section 8.2.1).
    const invalid = (index: number): Buffer =>
      encodeFrame(
        HEADERS,
        4,
        index * 2 + 1,
        Buffer.concat([encodeCallHead(), encodeField('Capital', 'x')]),
      );
    const { closed } = await sendFrames(
      server,
      Buffer.concat([repeatFrames(5, invalid), PING]),
      hasPingReply,
    );
    expect(closed).toBe(false);
    expect(await sendFrames(server, repeatFrames(100, invalid), never)).toMatchObject({
      closed: true,
    });
  });

  it('refuse streams of a session above maxSessionMemoryMb, and destroy it after too many refusals', async () => {
    // Node counts the memory of nghttp2 and of its own stream objects. OverloadProtection counts
    // heads and bodies.
    const limits = { maxSessionMemoryMb: 1, maxConcurrentStreams: 10_000 };
    const patient = await open({ limits: { ...limits, maxSessionRejectedStreams: 10_000 } });
    const calls = (count: number): Buffer => repeatFrames(count, (index) => call(index));
    const { frames, closed } = await sendFrames(
      patient,
      Buffer.concat([calls(3_000), PING]),
      hasPingReply,
    );
    expect({ closed, refused: countRefusals(frames) > 100 }).toEqual({
      closed: false,
      refused: true,
    });
    const impatient = await open({ limits: { ...limits, maxSessionRejectedStreams: 10 } });
    expect(await sendFrames(impatient, calls(3_000), never)).toMatchObject({
      closed: true,
    });
  });
});

/** Counts the streams that the server refused. */
function countRefusals(
  frames: readonly { readonly type: number; readonly code: number }[],
): number {
  return frames.filter(
    ({ type, code }) =>
      type === RST_STREAM && (code === REFUSED_STREAM || code === ENHANCE_YOUR_CALM),
  ).length;
}
