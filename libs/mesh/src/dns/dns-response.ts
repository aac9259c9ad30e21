import type { ZoneRecord } from '@cloudless/network';
import {
  HEADER_BYTES,
  MAX_UDP_BYTES,
  RESPONSE_CODES,
  type DnsQuery,
  type ResponseCode,
} from './dns-query.js';

/** The parts of a response after the question. */
export interface ResponseParts {
  readonly code: ResponseCode;
  readonly isAuthoritative: boolean;
  readonly answers: readonly ZoneRecord[];
  readonly authorities: readonly ZoneRecord[];
  readonly additionals: readonly ZoneRecord[];
}

const TYPE_NUMBERS: Readonly<Record<ZoneRecord['type'], number>> = {
  A: 1,
  NS: 2,
  CNAME: 5,
  SOA: 6,
  PTR: 12,
  HINFO: 13,
  AAAA: 28,
  SRV: 33,
};
const FLAG_RESPONSE = 0x8000;
const FLAG_AUTHORITATIVE = 0x0400;
const FLAG_TRUNCATED = 0x0200;
const FLAG_RECURSION_DESIRED = 0x0100;
const FLAG_RECURSION_AVAILABLE = 0x0080;
const OPT_BYTES = 11;
/** Largest offset that a compression pointer can hold. */
const MAX_POINTER = 0x3fff;

/** Writes names with compression pointers. @see RFC 1035, section 4.1.4 */
class MessageWriter {
  private readonly offsets = new Map<string, number>();
  private buffer: Buffer;
  length: number;

  constructor(question: Buffer) {
    this.buffer = Buffer.allocUnsafe(Math.max(512, question.length * 2));
    question.copy(this.buffer);
    this.length = question.length;
  }

  /** Makes the suffixes of a name that is in the message usable as targets of pointers. */
  noteName(name: string, offset: number): void {
    let at = offset;
    for (let rest = name; rest !== '';) {
      if (at <= MAX_POINTER && !this.offsets.has(rest)) this.offsets.set(rest, at);
      const dot = rest.indexOf('.');
      at += (dot === -1 ? rest.length : dot) + 1;
      rest = dot === -1 ? '' : rest.slice(dot + 1);
    }
  }

  name(name: string): void {
    for (let rest = name; rest !== '';) {
      const known = this.offsets.get(rest);
      if (known !== undefined) {
        this.uint16(0xc000 | known);
        return;
      }
      if (this.length <= MAX_POINTER) this.offsets.set(rest, this.length);
      const dot = rest.indexOf('.');
      const label = dot === -1 ? rest : rest.slice(0, dot);
      this.text(label.slice(0, 63));
      rest = dot === -1 ? '' : rest.slice(dot + 1);
    }
    this.uint8(0);
  }

  record(record: ZoneRecord): void {
    this.name(record.name);
    this.uint16(TYPE_NUMBERS[record.type]);
    this.uint16(1);
    this.uint32(record.ttlSeconds);
    const lengthAt = this.length;
    this.uint16(0);
    this.data(record);
    this.buffer.writeUInt16BE(this.length - lengthAt - 2, lengthAt);
  }

  private data(record: ZoneRecord): void {
    switch (record.type) {
      case 'A':
        for (const octet of record.address.split('.')) this.uint8(Number(octet));
        return;
      case 'AAAA':
        for (const group of ipv6Groups(record.address)) this.uint16(group);
        return;
      case 'CNAME':
      case 'NS':
      case 'PTR':
        this.name(record.target);
        return;
      case 'SRV':
        this.uint16(record.priority);
        this.uint16(record.weight);
        this.uint16(record.port);
        this.name(record.target);
        return;
      case 'SOA':
        this.name(record.primary);
        this.name(record.mailbox);
        this.uint32(record.serial);
        this.uint32(record.refreshSeconds);
        this.uint32(record.retrySeconds);
        this.uint32(record.expireSeconds);
        this.uint32(record.negativeTtlSeconds);
        return;
      case 'HINFO':
        this.text(record.cpu);
        this.text(record.os);
    }
  }

  private text(text: string): void {
    this.reserve(text.length + 1);
    this.buffer[this.length] = text.length;
    this.buffer.write(text, this.length + 1, 'latin1');
    this.length += text.length + 1;
  }

  private uint8(value: number): void {
    this.reserve(1);
    this.length = this.buffer.writeUInt8(value, this.length);
  }

  private uint16(value: number): void {
    this.reserve(2);
    this.length = this.buffer.writeUInt16BE(value, this.length);
  }

  private uint32(value: number): void {
    this.reserve(4);
    this.length = this.buffer.writeUInt32BE(value, this.length);
  }

  private reserve(bytes: number): void {
    if (this.length + bytes <= this.buffer.length) return;
    const larger = Buffer.allocUnsafe(this.buffer.length * 2 + bytes);
    this.buffer.copy(larger, 0, 0, this.length);
    this.buffer = larger;
  }

  bytes(): Buffer {
    return this.buffer.subarray(0, this.length);
  }
}

/**
 * Encodes a response without OPT record and with the id and flags of `query`. It may be kept and
 * sent to other clients with {@link respondFrom}.
 */
export function encodeResponse(query: DnsQuery, parts: ResponseParts): Buffer {
  const writer = new MessageWriter(query.message.subarray(0, query.questionEnd));
  // The text of a name with escapes has other lengths than its bytes.
  if (!query.name.includes('\\')) writer.noteName(query.name, HEADER_BYTES);
  for (const records of [parts.answers, parts.authorities, parts.additionals]) {
    for (const record of records) writer.record(record);
  }
  const message = writer.bytes();
  const flags = FLAG_RESPONSE | (parts.isAuthoritative ? FLAG_AUTHORITATIVE : 0);
  message.writeUInt16BE(flags | RESPONSE_CODES[parts.code], 2);
  message.writeUInt16BE(1, 4);
  message.writeUInt16BE(parts.answers.length, 6);
  message.writeUInt16BE(parts.authorities.length, 8);
  message.writeUInt16BE(parts.additionals.length, 10);
  return message;
}

/** Options of {@link respondFrom}. */
export interface RespondOptions {
  readonly recursionAvailable: boolean;
  /** Largest size in bytes; above, the client receives a truncated response and retries by TCP. */
  readonly maxBytes: number;
}

/**
 * Returns the response for a client from one for the same question: with the id, the recursion flag
 * and the spelling of the question of the client, and an OPT record when the client sent one.
 */
export function respondFrom(encoded: Buffer, query: DnsQuery, options: RespondOptions): Buffer {
  const { message, questionEnd, hasEdns } = query;
  const optBytes = hasEdns ? OPT_BYTES : 0;
  const isTruncated = encoded.length + optBytes > options.maxBytes;
  const bodyEnd = isTruncated ? questionEnd : encoded.length;
  const response = Buffer.allocUnsafe(bodyEnd + optBytes);
  message.copy(response, 0, 0, questionEnd);
  encoded.copy(response, 2, 2, HEADER_BYTES);
  encoded.copy(response, questionEnd, questionEnd, bodyEnd);
  response[2] = (encoded[2] ?? 0) | ((message[2] ?? 0) & (FLAG_RECURSION_DESIRED >> 8));
  if (options.recursionAvailable) response[3] = (encoded[3] ?? 0) | FLAG_RECURSION_AVAILABLE;
  if (isTruncated) {
    response[2] = (response[2] ?? 0) | (FLAG_TRUNCATED >> 8);
    response.fill(0, 6, HEADER_BYTES);
  }
  if (hasEdns) writeOpt(response, bodyEnd);
  return response;
}

/** Returns an error for a message of which only the first `questionEnd` bytes are understood. */
export function respondError(message: Buffer, code: ResponseCode, questionEnd: number): Buffer {
  const number = RESPONSE_CODES[code];
  const needsOpt = number > 15;
  const response = Buffer.alloc(questionEnd + (needsOpt ? OPT_BYTES : 0));
  message.copy(response, 0, 0, questionEnd);
  // Opcode and "recursion desired" come back as they were.
  response.writeUInt16BE(FLAG_RESPONSE | (message.readUInt16BE(2) & 0x7900) | (number & 15), 2);
  response.fill(0, 4, HEADER_BYTES);
  if (questionEnd > HEADER_BYTES) response.writeUInt16BE(1, 4);
  if (needsOpt) {
    writeOpt(response, questionEnd);
    response[questionEnd + 5] = number >> 4;
  }
  return response;
}

/** Appends an OPT record at `offset` and counts the record. @see RFC 6891, section 6.1.2 */
function writeOpt(response: Buffer, offset: number): void {
  response.writeUIntBE(0x000029, offset, 3); // root name, type OPT
  response.writeUInt16BE(MAX_UDP_BYTES, offset + 3);
  response.fill(0, offset + 5, offset + OPT_BYTES);
  response.writeUInt16BE(response.readUInt16BE(10) + 1, 10);
}

/** Returns the groups of an IPv6 address without zone and without IPv4 part. */
function ipv6Groups(address: string): readonly number[] {
  const [left = '', right] = address.split('::');
  const groupsOf = (text: string): number[] =>
    text === '' ? [] : text.split(':').map((group) => parseInt(group, 16));
  const before = groupsOf(left);
  if (right === undefined) return before;
  const after = groupsOf(right);
  return [
    ...before,
    ...new Array<number>(Math.max(0, 8 - before.length - after.length)).fill(0),
    ...after,
  ];
}
