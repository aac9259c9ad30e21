import { createSocket, type Socket } from 'node:dgram';
import { isIPv6 } from 'node:net';
import type { Duplex } from 'node:stream';
import { errorCodeOf } from '@cloudless/base';
import { DatagramReader, encodeDatagram } from './datagram-frames.js';

/** Bytes that wait for a slow stream above which datagrams are dropped. */
const MAX_QUEUED_BYTES = 256 * 1024;

/** Receiver of the datagrams of one session. */
export interface UdpPeer {
  /** Sends a datagram, or drops it when the way is congested. */
  send(datagram: Buffer): void;
  close(): void;
}

export interface UdpPeerHandlers {
  readonly onOpen: () => void;
  readonly onDatagram: (datagram: Buffer) => void;
  /** Called at most once, unless `close` was called before. */
  readonly onEnd: (reason: string) => void;
}

/** Opens a UDP socket that is connected to an address. */
export function openUdpPeer(ip: string, port: number, handlers: UdpPeerHandlers): UdpPeer {
  const socket: Socket = createSocket(isIPv6(ip) ? 'udp6' : 'udp4');
  let isClosed = false;
  const close = (): void => {
    if (isClosed) return;
    isClosed = true;
    socket.close();
  };
  socket.on('error', (reason) => {
    if (isClosed) return;
    close();
    handlers.onEnd(errorCodeOf(reason) ?? reason.message);
  });
  socket.on('message', (datagram) => handlers.onDatagram(datagram));
  // A refusal by ICMP arrives as an error of the next operation.
  socket.connect(port, ip, () => {
    if (!isClosed) handlers.onOpen();
  });
  return {
    send: (datagram) => {
      if (!isClosed)
        socket.send(datagram, (reason) => {
          if (reason !== null && !isClosed) socket.emit('error', reason);
        });
    },
    close,
  };
}

/** Carries datagrams in a stream between two proxies. */
export function openStreamPeer(stream: Duplex, handlers: UdpPeerHandlers): UdpPeer {
  const reader = new DatagramReader((datagram) => handlers.onDatagram(datagram));
  let isClosed = false;
  const end = (reason: string): void => {
    if (isClosed) return;
    isClosed = true;
    stream.destroy();
    handlers.onEnd(reason);
  };
  stream.on('data', (chunk: Buffer) => reader.read(chunk));
  stream.on('error', () => undefined);
  stream.on('end', () => end('closed'));
  stream.on('close', () => end('the connection to the other node ended'));
  stream.resume();
  return {
    send: (datagram) => {
      if (!isClosed && stream.writableLength < MAX_QUEUED_BYTES)
        stream.write(encodeDatagram(datagram));
    },
    close: () => {
      if (isClosed) return;
      isClosed = true;
      stream.end();
      stream.destroy();
    },
  };
}
