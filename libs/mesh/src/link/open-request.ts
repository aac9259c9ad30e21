/** Asks the proxy of another node to connect a stream to an endpoint of that node. */
export interface OpenRequest {
  /** Id of the endpoint. An address cannot be named. */
  readonly endpoint: string;
  /** Name of the port of the service. */
  readonly port: string;
  readonly protocol: 'tcp' | 'udp';
  /** Address and port of the client, such as `10.0.0.7:41234`. */
  readonly client: string;
  /** Address and port at which the client reached the service. */
  readonly virtual: string;
  /** SPIFFE ID of the workload of the client, as its node says; otherwise of the node. */
  readonly identity: string;
  /** Span of the connection, in the format of the header `traceparent`. Absent: not traced. */
  readonly trace?: string;
}

/** Length of a `traceparent` of version 00. */
const MAX_TRACE_CHARACTERS = 55;

/** Reason why a node refuses to open a stream. */
export type RefusalCode =
  | 'unknownEndpoint' // not an endpoint of this node, or no port of that name
  | 'notReady' // the endpoint leaves or is not ready
  | 'connectFailed' // the endpoint does not accept connections
  | 'limit' // too many streams
  | 'draining'; // the proxy is about to stop

export interface Refusal {
  readonly code: RefusalCode;
  /** Explanation for people. */
  readonly message: string;
}

const CODES: readonly string[] = [
  'unknownEndpoint',
  'notReady',
  'connectFailed',
  'limit',
  'draining',
] satisfies readonly RefusalCode[];

/**
 * Returns the request in a payload; undefined when the payload is not one. Unknown fields are
 * ignored.
 */
export function parseOpenRequest(payload: Buffer): OpenRequest | undefined {
  const fields = parseObject(payload);
  if (fields === undefined) return undefined;
  const { endpoint, port, protocol, client, virtual, identity, trace } = fields;
  if (protocol !== 'tcp' && protocol !== 'udp') return undefined;
  if (!isText(endpoint) || !isText(port) || !isText(client) || !isText(virtual)) return undefined;
  if (!isText(identity)) return undefined;
  const request = { endpoint, port, protocol, client, virtual, identity } as const;
  return isText(trace) && trace.length <= MAX_TRACE_CHARACTERS ? { ...request, trace } : request;
}

/** Returns the refusal in a payload; one without explanation when the payload is damaged. */
export function parseRefusal(payload: Buffer): Refusal {
  const { code, message } = parseObject(payload) ?? {};
  return {
    code: isCode(code) ? code : 'connectFailed',
    message: isText(message) ? message : 'the other proxy gave no reason',
  };
}

/** First message of each side of a connection between proxies. */
export interface Hello {
  /** Id of the node, for the log. The certificate decides. */
  readonly nodeId: string;
  /**
   * Ids of the open connections between both nodes that the sender has. The certificate of this
   * connection counts for them too, when the certificate ends later than theirs. At most 64.
   */
  readonly renews: readonly string[];
}

/** Most connections that the first message may name. */
export const MAX_RENEWED = 64;

/**
 * Returns the first message of a peer; undefined when the payload is not one. Without a valid list
 * the message renews nothing.
 */
export function parseHello(payload: Buffer): Hello | undefined {
  const { nodeId, renews } = parseObject(payload) ?? {};
  if (!isText(nodeId)) return undefined;
  const isList = Array.isArray(renews) && renews.length <= MAX_RENEWED && renews.every(isText);
  return { nodeId, renews: isList ? (renews as readonly string[]) : [] };
}

function parseObject(payload: Buffer): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(payload.toString('utf8'));
    return typeof value === 'object' && value !== null
      ? (value as Readonly<Record<string, unknown>>)
      : undefined;
  } catch {
    return undefined;
  }
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function isCode(value: unknown): value is RefusalCode {
  return isText(value) && CODES.includes(value);
}
