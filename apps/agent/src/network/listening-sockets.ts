import dgram from 'node:dgram';
import net from 'node:net';
import type { ListeningSockets } from '@cloudless/mesh';

/** A listening socket that one proxy process hands to the next. */
export type HandedSocket =
  | {
      readonly kind: 'tcp';
      readonly address: string;
      readonly port: number;
      readonly handle: net.Server;
    }
  | {
      readonly kind: 'udp';
      readonly address: string;
      readonly port: number;
      readonly handle: dgram.Socket;
    };

/**
 * Opens the listening sockets of a proxy process. A successor takes the sockets over while they
 * listen, so that no client is refused during an upgrade.
 */
export class ProcessSockets implements ListeningSockets {
  private readonly inherited = new Map<string, HandedSocket>();
  private readonly open = new Map<string, HandedSocket>();

  /** @param inherited - Sockets of the predecessor, held by {@link holdClients}. */
  constructor(inherited: readonly HandedSocket[] = []) {
    for (const socket of inherited) this.inherited.set(toKey(socket), socket);
  }

  async listenTcp(address: string, port: number): Promise<net.Server> {
    const known = this.take('tcp', address, port);
    if (known === undefined) this.closeConflicting(address, port);
    const server = known?.kind === 'tcp' ? known.handle : await listenTcp(address, port);
    this.keep({ kind: 'tcp', address, port, handle: server });
    return server;
  }

  async bindUdp(address: string, port: number): Promise<dgram.Socket> {
    const known = this.take('udp', address, port);
    const socket = known?.kind === 'udp' ? known.handle : await bindUdp(address, port);
    this.keep({ kind: 'udp', address, port, handle: socket });
    return socket;
  }

  /** All sockets that are open now. A listener with connections that does not listen is none. */
  list(): readonly HandedSocket[] {
    return [...this.open.values()].filter(({ kind, handle }) => kind === 'udp' || handle.listening);
  }

  /**
   * Closes the inherited sockets that no listener has asked for, with the clients that they hold.
   */
  closeUnused(): void {
    for (const socket of this.inherited.values()) closeInherited(socket);
    this.inherited.clear();
  }

  /**
   * Closes inherited TCP sockets that exclude a new socket: a wildcard socket has the port at every
   * address, and any socket keeps the port from a wildcard socket.
   */
  private closeConflicting(address: string, port: number): void {
    if (port === 0) return;
    for (const [key, socket] of this.inherited) {
      const isExcluded = isWildcard(socket.address) || isWildcard(address);
      if (socket.kind !== 'tcp' || socket.port !== port || !isExcluded) continue;
      this.inherited.delete(key);
      closeInherited(socket);
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
    if (socket === undefined) return undefined;
    taken.add(socket.handle);
    // The caller adds its handler at once.
    setImmediate(() => releaseClients(socket));
    return socket;
  }
}

/** Connections, and messages with their senders, that arrived before the socket had a handler. */
type HeldClients = (net.Socket | readonly [Buffer, dgram.RemoteInfo])[];
const heldClients = new WeakMap<net.Server | dgram.Socket, HeldClients>();
/** Sockets whose new owner adds a handler, or has added one. */
const taken = new WeakSet<net.Server | dgram.Socket>();
/** Most clients that a socket holds. Others wait in the kernel, or send again. */
const MAX_HELD = 4_096;

/**
 * Keeps the clients that arrive at a socket of another process until the socket has a handler. Such
 * a socket accepts connections as soon as it arrives, and has none of the options with which it was
 * created.
 */
export function holdClients({ kind, handle }: HandedSocket): void {
  const held: HeldClients = [];
  heldClients.set(handle, held);
  if (kind === 'udp') {
    handle.on('message', (message: Buffer, sender: dgram.RemoteInfo) => {
      if (hasHandler({ kind, handle })) return;
      if (held.length < MAX_HELD) held.push([message, sender]);
    });
    return;
  }
  Object.assign(handle, { allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
  handle.on('connection', (socket: net.Socket) => {
    if (hasHandler({ kind, handle })) return;
    if (held.length < MAX_HELD) held.push(socket);
    else socket.destroy();
  });
}

/** Returns true when the new owner of a socket gets a client that arrives now. */
function hasHandler({ kind, handle }: Pick<HandedSocket, 'kind' | 'handle'>): boolean {
  const event = kind === 'udp' ? 'message' : 'connection';
  return taken.has(handle) && handle.listenerCount(event) > 1;
}

/** Gives the held clients to the handlers that the socket has got. */
function releaseClients({ kind, handle }: HandedSocket): void {
  const held = heldClients.get(handle) ?? [];
  heldClients.delete(handle);
  const event = kind === 'udp' ? 'message' : 'connection';
  const [holder] = handle.listeners(event) as ((...args: unknown[]) => void)[];
  if (holder !== undefined) handle.off(event, holder);
  for (const client of held)
    if (client instanceof net.Socket) handle.emit('connection', client);
    else handle.emit('message', ...client);
}

function closeInherited(socket: HandedSocket): void {
  socket.handle.close();
  for (const client of heldClients.get(socket.handle) ?? [])
    if (client instanceof net.Socket) client.destroy();
}

function isWildcard(address: string): boolean {
  return ['0.0.0.0', '::', '[::]'].includes(address);
}

function toKey({ kind, address, port }: Pick<HandedSocket, 'kind' | 'address' | 'port'>): string {
  return `${kind} ${address} ${port}`;
}

function listenTcp(address: string, port: number): Promise<net.Server> {
  const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    // Settings have brackets around IPv6.
    const host = address.replace(/^\[(.*)\]$/, '$1');
    server.listen({ host, port, backlog: 4_096 }, () => {
      server.off('error', reject);
      resolve(server);
    });
  });
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
