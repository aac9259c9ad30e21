import dgram from 'node:dgram';
import net from 'node:net';
import { errorMessageOf } from '@cloudless/base';
import type { ListeningSockets } from '@cloudless/mesh';
import {
  closeHanded,
  passClients,
  takeClients,
  type HandedSocket,
  type HandedTcpSocket,
} from './handed-socket.js';
import { acceptsAt, isWildcard, TcpServer } from './tcp-server.js';

/**
 * Opens the listening sockets of a proxy process. A successor takes the sockets over while they
 * listen, so that no client is refused during an upgrade.
 *
 * An inherited TCP socket can exclude a new server: a wildcard socket has the port at every address,
 * and any socket keeps the port from a wildcard server. The new server does not listen then: the
 * inherited socket gives its connections to the server until {@link ProcessSockets.startPending}.
 */
export class ProcessSockets implements ListeningSockets {
  private readonly inherited = new Map<string, HandedSocket>();
  private readonly open = new Map<string, HandedSocket>();
  /** Inherited sockets that exclude the servers of `pending`. */
  private readonly replaced = new Set<HandedTcpSocket>();
  /** Servers that do not listen yet. */
  private readonly pending = new Set<TcpServer>();
  /** Connections of `replaced` so far. */
  private passed = 0;
  /** True: clients at addresses without a server are refused, and not held for a later server. */
  private refusesOthers = false;

  /** @param inherited - Sockets of the predecessor, held by {@link holdClients}. */
  constructor(inherited: readonly HandedSocket[] = []) {
    for (const socket of inherited) this.inherited.set(toKey(socket), socket);
  }

  async listenTcp(address: string, port: number): Promise<net.Server> {
    const known = this.take('tcp', address, port);
    const server = known?.kind === 'tcp' ? known.handle : await this.openTcp(address, port);
    this.keep({ kind: 'tcp', address, port, handle: server });
    return server;
  }

  async bindUdp(address: string, port: number): Promise<dgram.Socket> {
    const known = this.take('udp', address, port);
    const socket = known?.kind === 'udp' ? known.handle : await bindUdp(address, port);
    this.keep({ kind: 'udp', address, port, handle: socket });
    return socket;
  }

  /**
   * All sockets that serve clients now. A listener with connections that does not listen is none.
   */
  list(): readonly HandedSocket[] {
    const all = [...this.open.values(), ...this.replaced];
    return all.filter(({ kind, handle }) => kind === 'udp' || handle.listening);
  }

  /** Servers that do not listen yet because inherited sockets exclude them. */
  get pendingCount(): number {
    return this.pending.size;
  }

  /** Connections so far that inherited sockets have given to such servers. */
  get passedCount(): number {
    return this.passed;
  }

  /**
   * Closes the inherited sockets that exclude servers of this process, and listens in their place.
   * Call this method once the predecessor has closed the sockets, and in a moment without clients: a
   * client that connects between the two, usually for less than a millisecond, is refused.
   * @returns Why servers do not listen yet, as texts for people. The caller calls again later.
   */
  async startPending(): Promise<readonly string[]> {
    for (const socket of this.replaced) closeHanded(socket);
    this.replaced.clear();
    const problems = await Promise.all([...this.pending].map((server) => this.start(server)));
    return problems.filter((problem) => problem !== undefined);
  }

  /**
   * Closes the inherited sockets that no listener has asked for, with the clients that they hold.
   */
  closeUnused(): void {
    for (const socket of this.inherited.values()) closeHanded(socket);
    this.inherited.clear();
    this.refusesOthers = true;
    for (const socket of this.replaced) this.passClients(socket);
  }

  /** Returns a server that listens, or will listen in place of inherited sockets. */
  private async openTcp(address: string, port: number): Promise<TcpServer> {
    const server = new TcpServer(address, port);
    if (this.findExcluding(address, port).length > 0) await requireAddress(address);
    const excluding = this.findExcluding(address, port);
    if (excluding.length === 0) await server.start();
    else this.replace(excluding, server);
    return server;
  }

  /** Returns the inherited sockets because of which a server cannot listen. */
  private findExcluding(address: string, port: number): readonly HandedTcpSocket[] {
    if (port === 0) return [];
    const sockets = [...this.inherited.values(), ...this.replaced];
    return sockets
      .filter((socket) => socket.kind === 'tcp')
      .filter(
        (socket) => socket.port === port && (isWildcard(socket.address) || isWildcard(address)),
      );
  }

  /** Gives the connections of sockets to a server, until the server can listen. */
  private replace(sockets: readonly HandedTcpSocket[], server: TcpServer): void {
    this.pending.add(server);
    server.once('close', () => this.endPending(server));
    for (const socket of sockets) {
      this.inherited.delete(toKey(socket));
      this.replaced.add(socket);
      this.passClients(socket);
    }
  }

  private passClients(socket: HandedTcpSocket): void {
    passClients(socket, (client) => this.pass(client, socket.port));
  }

  private pass(client: net.Socket, port: number): boolean {
    const { localAddress = '' } = client;
    const server = [...this.pending].find(
      (each) => each.port === port && acceptsAt(each.host, localAddress),
    );
    if (server?.emit('connection', client) === true) this.passed += 1;
    else if (this.refusesOthers) client.resetAndDestroy();
    else return false;
    return true;
  }

  private async start(server: TcpServer): Promise<string | undefined> {
    try {
      await server.start();
      this.pending.delete(server);
      return undefined;
    } catch (reason) {
      return `${server.host} port ${server.port}: ${errorMessageOf(reason)}`;
    }
  }

  /** The owner has closed a server before it listens: its part of the inherited sockets ends. */
  private endPending(server: TcpServer): void {
    if (!this.pending.delete(server)) return;
    const isUsed = ({ port }: HandedTcpSocket): boolean =>
      [...this.pending].some((each) => each.port === port);
    for (const socket of this.replaced) {
      if (isUsed(socket)) continue;
      this.replaced.delete(socket);
      closeHanded(socket);
    }
  }

  private keep(socket: HandedSocket): void {
    const key = toKey(socket);
    this.open.set(key, socket);
    // A listener closes with its last connection: by then another one may have the address.
    socket.handle.once('close', () => {
      if (this.open.get(key) === socket) this.open.delete(key);
    });
  }

  private take(
    kind: HandedSocket['kind'],
    address: string,
    port: number,
  ): HandedSocket | undefined {
    const key = toKey({ kind, address, port });
    const socket = this.inherited.get(key);
    this.inherited.delete(key);
    if (socket !== undefined) takeClients(socket);
    return socket;
  }
}

/** @throws with the code EADDRNOTAVAIL when the machine does not have an address. */
async function requireAddress(address: string): Promise<void> {
  const server = new TcpServer(address, 0);
  await server.start();
  server.close();
}

function toKey({ kind, address, port }: Pick<HandedSocket, 'kind' | 'address' | 'port'>): string {
  return `${kind} ${address} ${port}`;
}

function bindUdp(address: string, port: number): Promise<dgram.Socket> {
  const socket = dgram.createSocket(net.isIPv6(address) ? 'udp6' : 'udp4');
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.bind({ address, port, exclusive: true }, () => {
      socket.off('error', reject);
      resolve(socket);
    });
  });
}
