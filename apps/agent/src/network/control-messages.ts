import { CloudlessError } from '@cloudless/base';
import type { NetworkProxyStatus } from '@cloudless/mesh';
import type { ServiceAccess, ServiceAddress } from '@cloudless/agent-core';

/** Version of the protocol, raised by incompatible changes of the messages. */
export const CONTROL_PROTOCOL = 1;
/** Name of the control socket in the directory of a proxy. */
export const CONTROL_SOCKET = 'control';
/**
 * File with the settings of a proxy, which the agent writes before it starts or reloads the proxy.
 */
export const SETTINGS_FILE = 'settings.json';
/** Longest line from a client, bytes. */
export const MAX_REQUEST_BYTES = 64 * 1024;
/** Longest line from the proxy, bytes: a namespace may have thousands of services. */
export const MAX_RESPONSE_BYTES = 8 * 1024 * 1024;

/** Settings of the network proxy of a node. */
export interface ProxySettings {
  readonly nodeId: string;
  /** Id of the cluster, as the agent has stored it. Absent before the node has joined. */
  readonly clusterId?: string;
  readonly zone: string;
  readonly region: string;
  readonly hostId: string;
  /** Base addresses of coordinators. */
  readonly coordinators: readonly string[];
  /** Data directory of the agent, with the identity of the node. */
  readonly dataDir: string;
  /** True when the cluster has identities. */
  readonly usesTls: boolean;
  /** Address to which other proxies connect. Absent: see `defaultMeshPort`. */
  readonly meshListen?: { readonly host: string; readonly port: number };
  /**
   * Port to which other proxies connect, at the address with which this machine reaches its
   * coordinators. Absent, and without `meshListen`: this node can only dial out.
   */
  readonly defaultMeshPort?: number;
  /** Address at which HTTP routes are served without TLS. Absent: not served. */
  readonly ingressHttp?: { readonly host: string; readonly port: number };
  /** Address at which HTTP routes are served with TLS. Absent: not served. */
  readonly ingressHttps?: { readonly host: string; readonly port: number };
  /**
   * OTLP receiver of traces, and the share, 0 to 1, of the connections and requests without a trace
   * of their client that is traced. Absent: no traces.
   */
  readonly traces?: { readonly endpoint: string; readonly share: number };
}

/** Report of the proxy about itself. Revisions are text, as JSON has no large numbers. */
export type ControlStatus = Omit<NetworkProxyStatus, 'revision'> & {
  readonly revision: string;
  /** True when this proxy serves the virtual addresses of its network namespace. */
  readonly servesAddresses: boolean;
};

/**
 * One line of JSON of a client. `id` is repeated by the response. After `relay` the connection
 * carries the bytes of another proxy, in both directions, and no further messages.
 */
export type ControlRequest =
  | { readonly type: 'services'; readonly id: number; readonly namespace: string }
  /** The virtual addresses of the services that match one of the patterns. */
  | { readonly type: 'addresses'; readonly id: number; readonly patterns: readonly string[] }
  | { readonly type: 'status'; readonly id: number }
  | { readonly type: 'metrics'; readonly id: number }
  /** Read the settings and the identity again. */
  | { readonly type: 'reload'; readonly id: number }
  /** Replicas of this node have ended: their connections are reset. */
  | { readonly type: 'ended'; readonly id: number; readonly replicaIds: readonly string[] }
  /** Hand the sockets over to a new process, which this command starts. */
  | { readonly type: 'upgrade'; readonly id: number; readonly command: readonly string[] }
  /** End, and remove the route of the virtual addresses when no other proxy needs it. */
  | { readonly type: 'shutdown'; readonly id: number }
  | { readonly type: 'relay'; readonly fromNodeId: string };

/** One line of JSON of the proxy. The first line of each connection is the hello. */
export type ControlResponse =
  | {
      readonly type: 'hello';
      readonly protocol: number;
      readonly version: string;
      readonly pid: number;
      /** The settings with which the proxy runs. */
      readonly settings: ProxySettings;
    }
  | { readonly type: 'services'; readonly id: number; readonly access: ServiceAccess | undefined }
  /** `addresses` is absent while the proxy has not received all services. */
  | {
      readonly type: 'addresses';
      readonly id: number;
      readonly addresses?: readonly ServiceAddress[];
    }
  | { readonly type: 'status'; readonly id: number; readonly status: ControlStatus }
  | { readonly type: 'metrics'; readonly id: number; readonly text: string }
  | { readonly type: 'done'; readonly id: number }
  | { readonly type: 'failed'; readonly id: number; readonly reason: string };

/** Encodes a message as one line. */
export function encodeLine(message: ControlRequest | ControlResponse): string {
  return `${JSON.stringify(message)}\n`;
}

/**
 * Splits a byte stream into lines.
 * @param maxBytes - Longest line.
 */
export class LineReader {
  private rest: Buffer = Buffer.alloc(0);

  constructor(private readonly maxBytes: number) {}

  /** Bytes after the last complete line. */
  get remainder(): Buffer {
    return this.rest;
  }

  /**
   * Returns the next complete line; undefined when none is complete.
   * @param chunk - Further bytes, if there are any.
   * @throws kind `invalid` for a line that is too long; close the connection then.
   */
  next(chunk?: Buffer): string | undefined {
    if (chunk !== undefined)
      this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    const end = this.rest.indexOf(0x0a);
    if (end > this.maxBytes || (end < 0 && this.rest.length > this.maxBytes))
      throw new CloudlessError('invalid', `a line is longer than ${this.maxBytes} bytes`);
    if (end < 0) return undefined;
    const line = this.rest.subarray(0, end).toString();
    this.rest = this.rest.subarray(end + 1);
    return line;
  }
}

/**
 * Parses a line. Only the outer shape is checked: both peers belong to this program, and the socket
 * is private.
 * @throws kind `invalid` unless the line is a JSON object with a `type`.
 */
export function parseLine<Message extends ControlRequest | ControlResponse>(line: string): Message {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new CloudlessError('invalid', 'malformed message', { cause });
  }
  if (typeof value !== 'object' || value === null || typeof (value as Message).type !== 'string')
    throw new CloudlessError('invalid', 'malformed message');
  return value as Message;
}

/**
 * Parses a line of the proxy. Proxies of earlier versions answer a request that they do not know
 * with nothing but the id, which counts as a refusal.
 * @throws kind `invalid` unless the line is a JSON object with a `type` or an `id`.
 */
export function parseResponse(line: string): ControlResponse {
  const id = /^\{"id":(\d+)\}$/.exec(line)?.[1];
  if (id === undefined) return parseLine(line);
  return { type: 'failed', id: Number(id), reason: 'the network proxy does not know the request' };
}
