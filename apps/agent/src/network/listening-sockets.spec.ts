import dgram from 'node:dgram';
import { once } from 'node:events';
import net from 'node:net';
import { holdClients, type HandedTcpSocket, type HandedUdpSocket } from './handed-socket.js';
import { ProcessSockets } from './listening-sockets.js';

const LOOPBACK = '127.0.0.1';
const open: { close(): void }[] = [];
afterEach(() => open.splice(0).forEach((each) => each.close()));

/** Socket that another process has handed over: it accepts clients, and has no handler for them. */
async function handTcp(address = LOOPBACK): Promise<HandedTcpSocket> {
  const handle = net.createServer();
  open.push(handle);
  handle.listen(0, address.replace(/[[\]]/g, ''));
  await once(handle, 'listening');
  const { port } = handle.address() as net.AddressInfo;
  const handed = { kind: 'tcp', address, port, handle } as const;
  holdClients(handed);
  return handed;
}

/** The same for a socket that takes datagrams. */
async function handUdp(): Promise<HandedUdpSocket> {
  const handle = dgram.createSocket('udp4');
  open.push(handle);
  handle.bind(0, LOOPBACK);
  await once(handle, 'listening');
  const handed = { kind: 'udp', address: LOOPBACK, port: handle.address().port, handle } as const;
  holdClients(handed);
  return handed;
}

describe('ProcessSockets', () => {
  it('gives connections that arrived during the hand-over to the handler of the successor', async () => {
    const handed = await handTcp();
    const client = net.connect(handed.port, LOOPBACK);
    await once(handed.handle, 'connection');
    const sockets = new ProcessSockets([handed]);
    const server = await sockets.listenTcp(LOOPBACK, handed.port);
    server.on('connection', (socket) => socket.end('served'));
    const [data] = (await once(client, 'data')) as [Buffer];
    expect([server === handed.handle, data.toString()]).toEqual([true, 'served']);
    client.destroy();
  });

  it('gives datagrams that arrived during the hand-over to the handler of the successor', async () => {
    const handed = await handUdp();
    const client = dgram.createSocket('udp4');
    open.push(client);
    client.send('question', handed.port, LOOPBACK);
    await once(handed.handle, 'message');
    const socket = await new ProcessSockets([handed]).bindUdp(LOOPBACK, handed.port);
    const [message] = (await once(socket, 'message')) as [Buffer];
    expect(message.toString()).toBe('question');
  });

  it('gives each connection once that arrives while the handler of the successor is added', async () => {
    const handed = await handTcp();
    const server = await new ProcessSockets([handed]).listenTcp(LOOPBACK, handed.port);
    const served: net.Socket[] = [];
    server.on('connection', (socket) => served.push(socket));
    const arrived = new net.Socket();
    server.emit('connection', arrived);
    await new Promise((resolve) => setImmediate(resolve));
    expect(served).toEqual([arrived]);
  });

  it('gives each datagram once that arrives while the handler of the successor is added', async () => {
    const handed = await handUdp();
    const socket = await new ProcessSockets([handed]).bindUdp(LOOPBACK, handed.port);
    const received: string[] = [];
    socket.on('message', (message: Buffer) => received.push(message.toString()));
    socket.emit('message', Buffer.from('question'), { port: 1, address: LOOPBACK });
    await new Promise((resolve) => setImmediate(resolve));
    expect(received).toEqual(['question']);
  });

  it('closes inherited sockets that this process does not use, with their clients', async () => {
    const handed = await handTcp();
    const client = net.connect(handed.port, LOOPBACK);
    await once(handed.handle, 'connection');
    new ProcessSockets([handed]).closeUnused();
    await once(client, 'close');
    expect(handed.handle.listening).toBe(false);
  });

  describe('with an inherited socket that excludes a new server', () => {
    const CASES = [
      { before: '0.0.0.0', after: LOOPBACK },
      { before: '::', after: LOOPBACK },
      { before: '[::]', after: '[::1]', client: '::1' },
      { before: '[::]', after: 'localhost', client: 'localhost' },
      { before: '[::]', after: '0.0.0.0' },
      { before: LOOPBACK, after: '0.0.0.0' },
      { before: LOOPBACK, after: '[::]' },
    ];
    const ask = async (port: number, host = LOOPBACK): Promise<string> => {
      const client = net.connect(port, host);
      open.push({ close: () => client.destroy() });
      const [data] = (await once(client, 'data')) as [Buffer];
      return data.toString();
    };
    const serve = (server: net.Server, answer: string): void => {
      open.push(server);
      server.on('connection', (socket) => socket.end(answer));
    };

    it.each(CASES)(
      'serves at $after the clients of $before until the server can listen',
      async ({ before, after, client }) => {
        const handed = await handTcp(before);
        const { port } = handed;
        const early = ask(port, client);
        await once(handed.handle, 'connection');
        const sockets = new ProcessSockets([handed]);
        const server = await sockets.listenTcp(after, port);
        serve(server, 'served');
        expect([handed.handle.listening, server.listening]).toEqual([true, false]);
        expect(server.address()).toMatchObject({ port });
        expect([await early, await ask(port, client)]).toEqual(['served', 'served']);
        expect(sockets.list()).toEqual([handed]);

        expect(await sockets.startPending()).toEqual([]);
        expect([handed.handle.listening, server.listening]).toEqual([false, true]);
        expect(await ask(port, client)).toBe('served');
        expect(sockets.list()).toMatchObject([{ address: after, port, handle: server }]);
      },
    );

    it('gives each client to the server at the address that the client has chosen', async () => {
      const handed = await handTcp('0.0.0.0');
      const sockets = new ProcessSockets([handed]);
      serve(await sockets.listenTcp(LOOPBACK, handed.port), 'first');
      const early = ask(handed.port, '127.0.0.2');
      await once(handed.handle, 'connection');
      serve(await sockets.listenTcp('127.0.0.2', handed.port), 'second');
      expect([await ask(handed.port), await early]).toEqual(['first', 'second']);
      const other = net.connect(handed.port, '127.0.0.3');
      await once(handed.handle, 'connection');
      expect([sockets.passedCount, sockets.pendingCount]).toEqual([2, 2]);
      await sockets.startPending();
      await once(other, 'close');
    });

    it('says which servers do not listen because the predecessor has the port, and tries again', async () => {
      const { handle: predecessor, port } = await handTcp('0.0.0.0');
      const { handle } = await handTcp('0.0.0.0');
      const sockets = new ProcessSockets([{ kind: 'tcp', address: '0.0.0.0', port, handle }]);
      serve(await sockets.listenTcp(LOOPBACK, port), 'served');
      expect(await sockets.startPending()).toEqual([
        `${LOOPBACK} port ${port}: listen EADDRINUSE: address already in use ${LOOPBACK}:${port}`,
      ]);
      predecessor.close();
      expect(await sockets.startPending()).toEqual([]);
      expect(await ask(port)).toBe('served');
    });

    it('refuses an address that the machine does not have', async () => {
      const handed = await handTcp('0.0.0.0');
      const sockets = new ProcessSockets([handed]);
      await expect(sockets.listenTcp('192.0.2.1', handed.port)).rejects.toMatchObject({
        code: 'EADDRNOTAVAIL',
      });
      expect(handed.handle.listening).toBe(true);
    });

    it('closes the inherited socket with the last server that uses it', async () => {
      const handed = await handTcp('0.0.0.0');
      const sockets = new ProcessSockets([handed]);
      const servers = [];
      for (const host of [LOOPBACK, '127.0.0.2'])
        servers.push(await sockets.listenTcp(host, handed.port));
      const listening = [];
      for (const server of servers) {
        server.close();
        await once(server, 'close');
        listening.push(handed.handle.listening);
      }
      expect([listening, sockets.list(), await sockets.startPending()]).toEqual([
        [true, false],
        [],
        [],
      ]);
    });

    it('refuses clients without a server once unused sockets are closed', async () => {
      const handed = await handTcp('0.0.0.0');
      const sockets = new ProcessSockets([handed]);
      serve(await sockets.listenTcp(LOOPBACK, handed.port), 'served');
      const early = net.connect(handed.port, '127.0.0.2');
      const ends = [once(early, 'error')];
      await once(handed.handle, 'connection');
      sockets.closeUnused();
      ends.push(once(net.connect(handed.port, '127.0.0.2'), 'error'));
      for (const end of ends) expect(await end).toMatchObject([{ code: 'ECONNRESET' }]);
      expect([await ask(handed.port), sockets.passedCount, sockets.pendingCount]).toEqual([
        ...['served', 1, 1],
      ]);
    });
  });

  it('keeps inherited sockets at other ports and addresses', async () => {
    const [handed, other] = [await handTcp(), await handTcp('0.0.0.0')];
    const sockets = new ProcessSockets([handed, other]);
    open.push(await sockets.listenTcp('127.0.0.2', handed.port));
    expect(sockets.pendingCount).toBe(0);
    expect([handed.handle.listening, other.handle.listening]).toEqual([true, true]);
  });

  it('lists the sockets that are open', async () => {
    const sockets = new ProcessSockets();
    const server = await sockets.listenTcp(LOOPBACK, 0);
    expect(sockets.list()).toMatchObject([{ kind: 'tcp', address: LOOPBACK }]);
    server.close();
    await once(server, 'close');
    expect(sockets.list()).toEqual([]);
  });

  it('does not list a listener that is closed and has a connection, and lists its successor', async () => {
    const sockets = new ProcessSockets();
    const { port } = await handTcp();
    open.splice(0).forEach((each) => each.close());
    const server = await sockets.listenTcp(LOOPBACK, port);
    const client = net.connect(port, LOOPBACK);
    const [socket] = (await once(server, 'connection')) as [net.Socket];
    server.close();
    expect(sockets.list()).toEqual([]);
    const next = await sockets.listenTcp(LOOPBACK, port);
    open.push(next);
    client.destroy();
    socket.destroy();
    await once(server, 'close');
    expect(sockets.list()).toMatchObject([{ port, handle: next }]);
  });

  it('listens at IPv6 addresses with and without brackets', async () => {
    for (const host of ['[::1]', '::1']) {
      const server = await new ProcessSockets().listenTcp(host, 0);
      open.push(server);
      expect(server.address()).toMatchObject({ address: '::1' });
    }
  });

  it('accepts half-open connections, paused', async () => {
    const server = await new ProcessSockets().listenTcp(LOOPBACK, 0);
    open.push(server);
    const client = net.connect((server.address() as net.AddressInfo).port, LOOPBACK);
    const [socket] = (await once(server, 'connection')) as [net.Socket];
    expect([socket.allowHalfOpen, socket.isPaused()]).toEqual([true, true]);
    client.destroy();
    socket.destroy();
  });
});
