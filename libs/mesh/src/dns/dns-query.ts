import type { QueryType } from '@cloudless/network';

/** Bytes of the header of a DNS message. */
export const HEADER_BYTES = 12;
/** Size of a UDP response for clients without EDNS. @see RFC 1035, section 4.2.1 */
export const PLAIN_UDP_BYTES = 512;
/** Largest UDP response: fits into one packet on all usual paths. @see DNS Flag Day 2020 */
export const MAX_UDP_BYTES = 1_232;

/** Response codes of DNS. @see RFC 1035, section 4.1.1; RFC 6891, section 9 */
export const RESPONSE_CODES = {
  NOERROR: 0,
  FORMERR: 1,
  SERVFAIL: 2,
  NXDOMAIN: 3,
  NOTIMP: 4,
  REFUSED: 5,
  BADVERS: 16,
} as const;
/** Name of a response code. */
export type ResponseCode = keyof typeof RESPONSE_CODES;

/** A question as a client sent it. */
export interface DnsQuery {
  readonly message: Buffer;
  /** Name in lower case without the last dot; bytes that are no printable ASCII as `\ddd`. */
  readonly name: string;
  readonly type: QueryType;
  /** Number of the type, also of types that the zone does not know. */
  readonly typeNumber: number;
  /** Offset of the first byte after the question. */
  readonly questionEnd: number;
  /** Largest response by UDP. */
  readonly maxUdpBytes: number;
  readonly hasEdns: boolean;
}

/** Result of {@link parseQuery}. */
export type ParsedQuery =
  | { readonly kind: 'query'; readonly query: DnsQuery }
  /** No answer: not a question, or too short to answer. */
  | { readonly kind: 'ignore' }
  /** The client receives an error. */
  | { readonly kind: 'error'; readonly code: ResponseCode; readonly questionEnd: number };

const QUERY_TYPES: ReadonlyMap<number, QueryType> = new Map([
  [1, 'A'],
  [2, 'NS'],
  [5, 'CNAME'],
  [6, 'SOA'],
  [12, 'PTR'],
  [28, 'AAAA'],
  [33, 'SRV'],
  [255, 'ANY'],
]);
const OPT_TYPE = 41;
/** Transfers and obsolete types: never answered, never forwarded. */
const REFUSED_TYPES: ReadonlySet<number> = new Set([251, 252, 253, 254]);
const CLASS_IN = 1;
const MAX_NAME_BYTES = 255;

/**
 * Parses the question of a DNS message. Reads only what an answer needs, and never throws: any
 * client of the network may have sent the bytes.
 */
export function parseQuery(message: Buffer): ParsedQuery {
  if (message.length < HEADER_BYTES) return { kind: 'ignore' };
  const flags = message.readUInt16BE(2);
  if ((flags & 0x8000) !== 0) return { kind: 'ignore' }; // a response: answering would make loops
  const refuse = (code: ResponseCode, questionEnd = HEADER_BYTES): ParsedQuery => ({
    kind: 'error',
    code,
    questionEnd,
  });
  if ((flags & 0x7800) !== 0) return refuse('NOTIMP');
  if (message.readUInt16BE(4) !== 1) return refuse('FORMERR');
  if (message.readUInt32BE(6) !== 0) return refuse('FORMERR'); // answers in a question
  const nameEnd = endOfName(message, HEADER_BYTES);
  if (nameEnd === undefined || nameEnd + 4 > message.length) return refuse('FORMERR');
  const questionEnd = nameEnd + 4;
  const typeNumber = message.readUInt16BE(nameEnd);
  const edns = parseEdns(message, questionEnd);
  if (edns === 'malformed') return refuse('FORMERR', questionEnd);
  if (edns !== undefined && edns.version !== 0) return refuse('BADVERS', questionEnd);
  if (message.readUInt16BE(nameEnd + 2) !== CLASS_IN || REFUSED_TYPES.has(typeNumber)) {
    return refuse('REFUSED', questionEnd);
  }
  const wanted = edns?.udpBytes ?? PLAIN_UDP_BYTES;
  return {
    kind: 'query',
    query: {
      message,
      name: nameText(message, nameEnd),
      type: QUERY_TYPES.get(typeNumber) ?? 'OTHER',
      typeNumber,
      questionEnd,
      maxUdpBytes: Math.max(PLAIN_UDP_BYTES, Math.min(MAX_UDP_BYTES, wanted)),
      hasEdns: edns !== undefined,
    },
  };
}

/** Returns the offset after an uncompressed name. Undefined: not a name. */
function endOfName(message: Buffer, start: number): number | undefined {
  let offset = start;
  for (;;) {
    const length = message[offset];
    if (length === undefined || length > 63) return undefined;
    offset += length + 1;
    if (offset - start > MAX_NAME_BYTES || offset > message.length) return undefined;
    if (length === 0) return offset;
  }
}

function nameText(message: Buffer, nameEnd: number): string {
  let text = '';
  for (let offset = HEADER_BYTES; offset < nameEnd - 1;) {
    const length = message[offset] ?? 0;
    if (text !== '') text += '.';
    text += message.toString('latin1', offset + 1, offset + 1 + length);
    offset += length + 1;
  }
  // A dot or a strange byte inside a label must not make another name of it.
  return UNUSUAL.test(text) || hasDotInLabel(message, nameEnd)
    ? escapedName(message, nameEnd)
    : text.toLowerCase();
}

const UNUSUAL = /[^!-~]/;

function hasDotInLabel(message: Buffer, nameEnd: number): boolean {
  for (let offset = HEADER_BYTES; offset < nameEnd - 1;) {
    const length = message[offset] ?? 0;
    const dot = message.indexOf(0x2e, offset + 1);
    if (dot !== -1 && dot <= offset + length) return true;
    offset += length + 1;
  }
  return false;
}

function escapedName(message: Buffer, nameEnd: number): string {
  const labels: string[] = [];
  for (let offset = HEADER_BYTES; offset < nameEnd - 1;) {
    const length = message[offset] ?? 0;
    const label = message.toString('latin1', offset + 1, offset + 1 + length);
    labels.push(
      label.replace(/[^!-~]|[.\\]/g, (byte) => `\\${String(byte.charCodeAt(0)).padStart(3, '0')}`),
    );
    offset += length + 1;
  }
  return labels.join('.').toLowerCase();
}

interface Edns {
  readonly udpBytes: number;
  readonly version: number;
}

/** Reads the OPT record, which must be the only additional record. */
function parseEdns(message: Buffer, start: number): Edns | 'malformed' | undefined {
  const count = message.readUInt16BE(10);
  if (count === 0) return undefined;
  // Root name, type, size, flags, length. Signed requests (TSIG) have a second record: not served.
  if (count !== 1 || message.length < start + 11 || message[start] !== 0) return 'malformed';
  if (message.readUInt16BE(start + 1) !== OPT_TYPE) return 'malformed';
  if (start + 11 + message.readUInt16BE(start + 9) > message.length) return 'malformed';
  return { udpBytes: message.readUInt16BE(start + 3), version: message[start + 6] ?? 0 };
}
