import * as http2 from 'node:http2';
import * as net from 'node:net';
import { once } from 'node:events';
import { FrameConnection, type StreamHandler } from './frame-connection.js';
import {
  FLAG_ACK,
  FLAG_END_STREAM,
  FrameSplitter,
  FrameType,
  PREFACE,
  SETTING_INITIAL_WINDOW_SIZE,
  encodeFrame,
  encodeSettings,
  encodeWindowUpdate,
} from './http2-frames.js';

type OnStream = (stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders) => void;

const closers: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

/** Connects to a new server, which the test closes. */
async function connectTo(server: net.Server | http2.Http2Server): Promise<FrameConnection> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  closers.push(async () => {
    server.close();
    await once(server, 'close');
  });
  const connection = await FrameConnection.connect(`http://127.0.0.1:${port}`);
  closers.unshift(async () => {
    connection.destroy();
    await connection.whenClosed;
  });
  return connection;
}

/** Connects to a server of `node:http2`. Returns its side of the connection as well. */
async function connectToServer(onStream: OnStream) {
  const server = http2.createServer();
  server.on('stream', onStream);
  const session = once(server, 'session');
  const connection = await connectTo(server);
  const [peer] = (await session) as [http2.ServerHttp2Session];
  return { connection, peer };
}

/** A peer that sends what a test says, and counts the bytes of data on each stream. */
class RawPeer {
  private readonly dataBytes = new Map<number, number>();
  /** Streams that the connection has reset. */
  readonly resets: number[] = [];
  private acknowledged = 0;
  private prefaceBytes = PREFACE.length;
  private wake: () => void = () => undefined;

  private constructor(
    private readonly socket: net.Socket,
    readonly connection: FrameConnection,
  ) {
    const input = new FrameSplitter();
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => {
      const start = Math.min(this.prefaceBytes, chunk.length);
      this.prefaceBytes -= start;
      input.read(chunk.subarray(start), (type, flags, stream, payload) => {
        if (type === FrameType.DATA)
          this.dataBytes.set(stream, this.countData(stream) + payload.length);
        else if (type === FrameType.RST_STREAM) this.resets.push(stream);
        else if (type === FrameType.SETTINGS || type === FrameType.PING)
          this.acknowledged += flags & FLAG_ACK;
      });
      this.wake();
    });
  }

  static async connect(): Promise<RawPeer> {
    const server = net.createServer();
    const accepted = once(server, 'connection');
    const connection = await connectTo(server);
    const [socket] = (await accepted) as [net.Socket];
    return new RawPeer(socket, connection);
  }

  /** Bytes of data that have arrived on a stream. */
  countData(stream: number): number {
    return this.dataBytes.get(stream) ?? 0;
  }

  async waitForData(stream: number, bytes: number): Promise<void> {
    while (this.countData(stream) < bytes) await this.next();
  }

  send(...frames: readonly Buffer[]): void {
    this.socket.write(Buffer.concat(frames));
  }

  /** Sends frames, and waits until the connection has answered them and all before. */
  async sendAndWait(...frames: readonly Buffer[]): Promise<void> {
    const acks = frames.filter((frame) => frame[3] === FrameType.SETTINGS).length + 1;
    const expected = this.acknowledged + acks;
    this.send(...frames, encodeFrame(FrameType.PING, 0, 0, Buffer.alloc(8)));
    while (this.acknowledged < expected) await this.next();
  }

  reset(): void {
    this.socket.resetAndDestroy();
  }

  private next(): Promise<void> {
    return new Promise((resolve) => (this.wake = resolve));
  }
}

const encodeWindow = (bytes: number): Buffer =>
  encodeSettings([[SETTING_INITIAL_WINDOW_SIZE, bytes]]);

/** Collects what arrives on a stream. */
class Received implements StreamHandler {
  ends = 0;
  private text = '';
  private wake: () => void = () => undefined;

  readonly onData = (data: Buffer): void => {
    this.text += data.toString();
    this.wake();
  };

  readonly onEnd = (): void => {
    this.ends += 1;
    this.wake();
  };

  async waitForText(expected: string): Promise<void> {
    while (this.text !== expected) await this.next();
  }

  async waitForEnd(): Promise<void> {
    while (this.ends === 0) await this.next();
  }

  private next(): Promise<void> {
    return new Promise((resolve) => (this.wake = resolve));
  }
}

const respond = (stream: http2.ServerHttp2Stream): void => {
  stream.on('error', () => undefined);
  stream.respond({ ':status': 200 });
};

describe('FrameConnection with a server of node:http2', () => {
  it('exchanges data on several streams', async () => {
    const calls: unknown[] = [];
    const { connection } = await connectToServer((stream, headers) => {
      respond(stream);
      calls.push([headers[':path'], headers[':method'], headers['content-type']]);
      stream.on('data', (data: Buffer) =>
        stream.write(`${headers[':path'] ?? ''} ${String(data)}`),
      );
    });
    const received = [new Received(), new Received()] as const;
    connection.open('/a', received[0]).write(Buffer.from('one'));
    connection.open('/b', received[1]).write(Buffer.from('two'));
    await received[0].waitForText('/a one');
    await received[1].waitForText('/b two');
    expect(calls).toEqual([
      ['/a', 'POST', 'application/grpc+proto'],
      ['/b', 'POST', 'application/grpc+proto'],
    ]);
  });

  it('sends and receives more than the first windows permit', async () => {
    const text = 'y'.repeat(300_000);
    const { connection } = await connectToServer((stream) => {
      respond(stream);
      stream.pipe(stream);
    });
    const received = new Received();
    connection.open('/a', received).write(Buffer.from(text));
    await received.waitForText(text);
  });

  it('ends a stream when the server ends or resets the stream', async () => {
    const { connection } = await connectToServer((stream, headers) => {
      respond(stream);
      if (headers[':path'] === '/end') stream.end('bye');
      else stream.close(http2.constants.NGHTTP2_CANCEL);
    });
    const [ended, reset] = [new Received(), new Received()];
    connection.open('/end', ended);
    connection.open('/reset', reset);
    await ended.waitForEnd();
    await reset.waitForEnd();
  });

  it('sends pings, and answers those of the server', async () => {
    const { connection, peer } = await connectToServer(respond);
    const ping = once(peer, 'ping');
    connection.ping();
    await ping;
    await new Promise<void>((resolve, reject) =>
      peer.ping((reason: Error | null) => (reason === null ? resolve() : reject(reason))),
    );
  });

  it('rejects when no server listens', async () => {
    const server = net.createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as net.AddressInfo;
    server.close();
    await once(server, 'close');
    await expect(FrameConnection.connect(`http://127.0.0.1:${port}`)).rejects.toThrow(
      'ECONNREFUSED',
    );
  });
});

describe('flow control of a FrameConnection', () => {
  it('obeys the window of each stream', async () => {
    const peer = await RawPeer.connect();
    await peer.sendAndWait(encodeWindow(10));
    for (const path of ['/a', '/b'])
      peer.connection.open(path, new Received()).write(Buffer.alloc(25));
    await peer.waitForData(1, 10);
    await peer.waitForData(3, 10);
    await peer.sendAndWait(encodeWindowUpdate(1, 5));
    expect([peer.countData(1), peer.countData(3)]).toEqual([15, 10]);
  });

  it('obeys the window of the connection, and sends the rest later', async () => {
    const peer = await RawPeer.connect();
    await peer.sendAndWait(encodeWindow(1_000_000));
    const stream = peer.connection.open('/a', new Received());
    stream.write(Buffer.alloc(60_000));
    stream.write(Buffer.alloc(20_000));
    await peer.waitForData(1, 65_535);
    await peer.sendAndWait();
    expect(peer.countData(1)).toBe(65_535);
    await peer.sendAndWait(encodeWindowUpdate(0, 14_000));
    expect(peer.countData(1)).toBe(79_535);
    await peer.sendAndWait(encodeWindowUpdate(0, 14_000));
    expect(peer.countData(1)).toBe(80_000);
  });

  it('sends nothing while the window of a stream is negative', async () => {
    const peer = await RawPeer.connect();
    const stream = peer.connection.open('/a', new Received());
    stream.write(Buffer.alloc(50));
    await peer.waitForData(1, 50);
    await peer.sendAndWait(encodeWindow(10)); // 40 bytes below 0
    stream.write(Buffer.alloc(50));
    await peer.sendAndWait(encodeWindowUpdate(1, 40));
    expect(peer.countData(1)).toBe(50);
    await peer.sendAndWait(encodeWindowUpdate(1, 7));
    expect(peer.countData(1)).toBe(57);
  });
});

describe('FrameSplitter', () => {
  it('reads frames that arrive byte by byte', () => {
    const input = new FrameSplitter();
    const read: unknown[] = [];
    const bytes = Buffer.concat([
      encodeFrame(FrameType.DATA, 1, 7, Buffer.from('text')),
      encodeFrame(FrameType.PING, 0, 0, Buffer.alloc(0)),
    ]);
    for (const byte of bytes)
      input.read(Buffer.of(byte), (type, flags, stream, payload) =>
        read.push([type, flags, stream, payload.toString()]),
      );
    expect(read).toEqual([
      [FrameType.DATA, 1, 7, 'text'],
      [FrameType.PING, 0, 0, ''],
    ]);
  });
});

describe('input of a FrameConnection', () => {
  it('removes the padding of data', async () => {
    const peer = await RawPeer.connect();
    const received = new Received();
    peer.connection.open('/a', received);
    const padded = 8;
    const payload = Buffer.concat([Buffer.of(3), Buffer.from('text'), Buffer.alloc(3)]);
    peer.send(encodeFrame(FrameType.DATA, padded, 1, payload));
    await received.waitForText('text');
  });

  it('resets a stream that the peer has ended, and sends nothing more', async () => {
    const peer = await RawPeer.connect();
    const received = new Received();
    const stream = peer.connection.open('/a', received);
    await peer.sendAndWait(encodeFrame(FrameType.HEADERS, FLAG_END_STREAM, 1, Buffer.alloc(0)));
    stream.write(Buffer.from('too late'));
    await peer.sendAndWait(encodeFrame(FrameType.RST_STREAM, 0, 1, Buffer.alloc(4)));
    expect([received.ends, peer.countData(1), peer.resets]).toEqual([1, 0, [1]]);
  });

  it.each([
    ['a reset of the connection', (peer: RawPeer) => peer.reset()],
    ['GOAWAY', (peer: RawPeer) => peer.send(encodeFrame(FrameType.GOAWAY, 0, 0, Buffer.alloc(8)))],
  ])('ends all streams after %s', async (_, end) => {
    const peer = await RawPeer.connect();
    const received = new Received();
    peer.connection.open('/a', received);
    end(peer);
    await peer.connection.whenClosed;
    expect([peer.connection.closed, received.ends]).toEqual([true, 1]);
  });
});
