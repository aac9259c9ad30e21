import type dgram from 'node:dgram';
import net from 'node:net';

/** A listening socket that one proxy process hands to the next. */
export type HandedSocket = HandedTcpSocket | HandedUdpSocket;

/** A TCP socket that accepts connections. */
export interface HandedTcpSocket {
  readonly kind: 'tcp';
  readonly address: string;
  readonly port: number;
  readonly handle: net.Server;
}

/** A UDP socket that is bound to an address. */
export interface HandedUdpSocket {
  readonly kind: 'udp';
  readonly address: string;
  readonly port: number;
  readonly handle: dgram.Socket;
}

/** Connections, and messages with their senders, that arrived before the socket had a handler. */
type HeldClients = (net.Socket | readonly [Buffer, dgram.RemoteInfo])[];
const heldClients = new WeakMap<net.Server | dgram.Socket, HeldClients>();
/** Sockets whose new owner adds a handler, or has added one. */
const taken = new WeakSet<net.Server | dgram.Socket>();
/** Functions that give the connections of a socket to other servers. */
const passes = new WeakMap<net.Server, PassClient>();
/** Most clients that a socket holds. Others wait in the kernel, or send again. */
const MAX_HELD = 4_096;

/** Gives a connection to a server. Returns false when no server takes the connection now. */
export type PassClient = (client: net.Socket) => boolean;

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
    if (hasHandler({ kind, handle }) || passes.get(handle)?.(socket) === true) return;
    if (held.length < MAX_HELD) held.push(socket);
    else socket.destroy();
  });
}

/** Gives the held clients, and those that arrive later, to the handler that the caller adds at once. */
export function takeClients(socket: HandedSocket): void {
  taken.add(socket.handle);
  setImmediate(() => releaseClients(socket));
}

/**
 * Offers the held connections, and those that arrive later, to other servers. Connections that no
 * server takes stay held, and are offered again by the next call.
 */
export function passClients({ handle }: HandedTcpSocket, pass: PassClient): void {
  passes.set(handle, pass);
  // The caller adds the handler of another server at once.
  setImmediate(() => {
    const held = heldClients.get(handle) ?? [];
    held.push(
      ...held.splice(0).filter((client) => !(client instanceof net.Socket && pass(client))),
    );
  });
}

/** Closes a socket, with the clients that it holds. */
export function closeHanded({ handle }: HandedSocket): void {
  handle.close();
  for (const client of heldClients.get(handle) ?? [])
    if (client instanceof net.Socket) client.destroy();
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
