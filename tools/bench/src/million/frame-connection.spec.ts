import * as http2 from 'node:http2';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { FrameConnection, type StreamHandler } from './frame-connection.js';

type OnStream = (stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders) => void;

/** A server, the server's side of the connection, and the connection under test. */
interface TestBed {
  readonly server: http2.Http2Server;
  readonly peer: http2.ServerHttp2Session;
  readonly connection: FrameConnection;
}

const openServers: TestBed[] = [];

async function connect(onStream: OnStream, settings: http2.Settings = {}): Promise<TestBed> {
  const server = http2.createServer({ settings });
  server.on('stream', onStream);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const session = once(server, 'session');
  const connection = await FrameConnection.connect(
    `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  );
  const [peer] = (await session) as [http2.ServerHttp2Session];
  const bed = { server, peer, connection };
  openServers.push(bed);
  return bed;
}

afterEach(async () => {
  for (const { server, connection } of openServers.splice(0)) {
    connection.destroy();
    server.close();
    await once(server, 'close');
  }
});

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

describe('FrameConnection', () => {
  it('exchanges data with a server on several streams', async () => {
    const paths: unknown[] = [];
    const { connection } = await connect((stream, headers) => {
      respond(stream);
      paths.push([headers[':path'], headers[':method'], headers['content-type']]);
      stream.on('data', (data: Buffer) =>
        stream.write(`${headers[':path'] ?? ''} ${String(data)}`),
      );
    });
    const received = [new Received(), new Received()] as const;
    const first = connection.open('/a', received[0]);
    const second = connection.open('/b', received[1]);
    first.write(Buffer.from('one'));
    second.write(Buffer.from('two'));
    await received[0].waitForText('/a one');
    await received[1].waitForText('/b two');
    expect(paths).toEqual([
      ['/a', 'POST', 'application/grpc+proto'],
      ['/b', 'POST', 'application/grpc+proto'],
    ]);
  });

  it('sends no more than the windows of the server permit, and the rest later', async () => {
    const data = 'x'.repeat(300_000);
    let received = 0;
    let isComplete: () => void = () => undefined;
    const complete = new Promise<void>((resolve) => (isComplete = resolve));
    const { connection } = await connect(
      (stream) => {
        respond(stream);
        stream.on('data', (chunk: Buffer) => {
          received += chunk.length;
          if (received === 2 * data.length) isComplete();
        });
      },
      { initialWindowSize: 1_000 },
    );
    for (const path of ['/a', '/b']) connection.open(path, new Received()).write(Buffer.from(data));
    // A server ends a connection that sends more than its windows permit.
    await complete;
    expect(connection.closed).toBe(false);
  });

  it('receives more data than the default window of a connection', async () => {
    const text = 'y'.repeat(200_000);
    const { connection } = await connect((stream) => {
      respond(stream);
      stream.write(text);
    });
    const received = new Received();
    connection.open('/a', received);
    await received.waitForText(text);
  });

  it('ends a stream once when the server ends or resets the stream', async () => {
    const { connection } = await connect((stream, headers) => {
      respond(stream);
      if (headers[':path'] === '/end') stream.end('bye');
      else stream.close(http2.constants.NGHTTP2_CANCEL);
    });
    const [ended, reset] = [new Received(), new Received()];
    const stream = connection.open('/end', ended);
    connection.open('/reset', reset);
    await ended.waitForEnd();
    await reset.waitForEnd();
    stream.write(Buffer.from('too late'));
    expect([ended.ends, reset.ends]).toEqual([1, 1]);
  });

  it('ends all streams when the connection is gone', async () => {
    const { connection, peer } = await connect(respond);
    const received = new Received();
    connection.open('/a', received);
    peer.destroy();
    await received.waitForEnd();
    await connection.waitForClose();
    expect([connection.closed, received.ends]).toEqual([true, 1]);
  });

  it('sends pings, and answers those of the server', async () => {
    const { connection, peer } = await connect(respond);
    const ping = once(peer, 'ping');
    connection.ping();
    await ping;
    await new Promise<void>((resolve, reject) =>
      peer.ping((reason: Error | null) => (reason === null ? resolve() : reject(reason))),
    );
  });

  it('rejects when there is no server', async () => {
    const { server } = await connect(respond);
    const { port } = server.address() as AddressInfo;
    openServers[0]?.connection.destroy();
    openServers.length = 0;
    server.close();
    await once(server, 'close');
    await expect(FrameConnection.connect(`http://127.0.0.1:${port}`)).rejects.toThrow(
      'ECONNREFUSED',
    );
  });
});
