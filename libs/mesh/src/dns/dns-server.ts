import type { RemoteInfo, Socket as UdpSocket } from 'node:dgram';
import type { Server } from 'node:net';
import { errorFields, type Clock, type Log } from '@cloudless/base';
import type { AddressRange, DnsZone, ZoneAnswer, ZoneRecord } from '@cloudless/network';
import { parseQuery, type DnsQuery, type ResponseCode } from './dns-query.js';
import { encodeResponse, respondError, respondFrom } from './dns-response.js';
import { serveTcp } from './dns-tcp.js';
import type { Exchange } from './exchange.js';
import { Forwarder, type ForwardLimits } from './forwarder.js';
import type { Resolver } from './resolvers.js';
import { DEFAULT_RESPONSE_LIMITS, ResponseLimit, type ResponseLimits } from './response-limit.js';

/** Options of a {@link DnsServer}. */
export interface DnsServerOptions {
  /** The names of the cluster; undefined until its settings are known. */
  readonly zone: () => DnsZone | undefined;
  /** Range of virtual addresses; undefined until the settings are known. */
  readonly range: () => AddressRange | undefined;
  /** Resolvers of the host for names outside the cluster, best first. */
  readonly resolvers: () => readonly Resolver[];
  /** Returns true when a client runs on this machine: only then are its questions forwarded. */
  readonly isLocalClient: (address: string) => boolean;
  readonly clock: Clock;
  readonly log: Log;
  readonly responseLimits?: Partial<ResponseLimits> | undefined;
  readonly forwardLimits?: Partial<ForwardLimits> | undefined;
  /** Sends a question to a resolver. Default: by UDP, and by TCP after a truncated response. */
  readonly exchange?: Exchange | undefined;
}

/** Counts since the start. */
export interface DnsCounts {
  /** Questions about names of the cluster that were answered. */
  answered: number;
  /** Questions that were forwarded. */
  forwarded: number;
  /** Forwarded questions without an answer. */
  failed: number;
  /** Malformed or refused messages. */
  refused: number;
  /** Responses that the limits against amplification dropped or truncated. */
  limited: number;
  /** Answers of resolvers that were refused because they lead into the cluster. */
  rebinding: number;
}

/** Encoded responses that are kept; when there are more, all are forgotten. */
const MAX_CACHED = 8_192;
/** Largest response by TCP. */
const MAX_TCP_BYTES = 65_535;

/**
 * The DNS server of a node: authoritative for the names of the cluster, and a forwarder for local
 * clients. Answers from memory, so no coordinator is needed.
 */
export class DnsServer {
  readonly counts: DnsCounts = {
    answered: 0,
    forwarded: 0,
    failed: 0,
    refused: 0,
    limited: 0,
    rebinding: 0,
  };
  private readonly forwarder: Forwarder;
  private readonly limit: ResponseLimit;
  /** Responses by question, valid for one zone at one revision. */
  private readonly cache = new Map<string, Buffer>();
  private cachedZone: DnsZone | undefined;
  private cachedRevision = -1;
  private rotation = 0;

  constructor(private readonly options: DnsServerOptions) {
    const { resolvers, range, clock, forwardLimits, exchange, responseLimits } = options;
    this.forwarder = new Forwarder({ resolvers, range, clock, limits: forwardLimits, exchange });
    this.limit = new ResponseLimit({ ...DEFAULT_RESPONSE_LIMITS, ...responseLimits });
  }

  /** Answers questions at a bound socket until the socket is closed. */
  serveUdp(socket: UdpSocket): void {
    const send = (response: Buffer | undefined, { address, port }: RemoteInfo): void => {
      // A client that is gone is no error of the server.
      if (response !== undefined) socket.send(response, port, address, noteNothing);
    };
    socket.on('message', (message, remote) => {
      const isLocal = this.options.isLocalClient(remote.address);
      const limited = (response: Buffer | undefined): Buffer | undefined =>
        isLocal || response === undefined ? response : this.applyLimit(response, remote.address);
      const answer = this.answer(message, remote.address, isLocal, false);
      if (answer instanceof Promise) {
        answer
          .then((response) => send(limited(response), remote))
          .catch((reason: unknown) => this.noteFault(reason));
      } else send(limited(answer), remote);
    });
    socket.on('error', (error) => {
      this.options.log.warn('the DNS socket failed', errorFields(error));
    });
  }

  /** Answers questions at a listening server until the server is closed. */
  serveTcp(server: Server): void {
    serveTcp(server, (message, address) =>
      this.answer(message, address, this.options.isLocalClient(address), true),
    );
  }

  /**
   * Answers one message. Synchronous for names of the cluster, so that the common case costs
   * little.
   * @returns Undefined: no response.
   */
  answer(
    message: Buffer,
    address: string,
    isLocal: boolean,
    byTcp: boolean,
  ): Buffer | undefined | Promise<Buffer | undefined> {
    const parsed = parseQuery(message);
    if (parsed.kind === 'ignore') return undefined;
    if (parsed.kind === 'error') {
      this.counts.refused += 1;
      return respondError(message, parsed.code, parsed.questionEnd);
    }
    const { query } = parsed;
    const options = {
      recursionAvailable: isLocal,
      maxBytes: byTcp ? MAX_TCP_BYTES : query.maxUdpBytes,
    };
    const own = this.ownResponse(query, isLocal, address);
    if (own instanceof Promise) return own.then((encoded) => respondFrom(encoded, query, options));
    if (own !== undefined) return respondFrom(own, query, options);
    if (!isLocal) return this.refuse(query, 'REFUSED');
    return this.forward(query, address, options.maxBytes);
  }

  /** Returns the encoded response for a name of the cluster; undefined for other names. */
  private ownResponse(
    query: DnsQuery,
    isLocal: boolean,
    address: string,
  ): Buffer | undefined | Promise<Buffer> {
    const zone = this.options.zone();
    if (zone === undefined) return encode(query, noAnswer('SERVFAIL'));
    if (zone !== this.cachedZone || zone.revision !== this.cachedRevision) {
      this.cache.clear();
      this.cachedZone = zone;
      this.cachedRevision = zone.revision;
    }
    const key = query.message.toString('latin1', 12, query.questionEnd).toLowerCase();
    const cached = this.cache.get(key);
    if (cached !== undefined) {
      this.counts.answered += 1;
      return cached;
    }
    const answer = localhostAnswer(query) ?? zone.lookup(query.name, query.type);
    if (answer === undefined) return undefined;
    this.counts.answered += 1;
    // Not cached: a foreign client gets the alias alone, a local client also what the alias leads to.
    if (answer.alias !== undefined)
      return isLocal ? this.chase(query, answer, address) : encode(query, answer);
    // Several addresses come in another order each time, so that clients spread over them.
    if (answer.answers.length > 1) return encode(query, this.rotated(answer));
    const encoded = encode(query, answer);
    if (this.cache.size >= MAX_CACHED) this.cache.clear();
    this.cache.set(key, encoded);
    return encoded;
  }

  /** Adds what an alias leads to, because clients expect the whole chain. */
  private async chase(query: DnsQuery, answer: ZoneAnswer, address: string): Promise<Buffer> {
    const { alias = '' } = answer;
    const own = this.options.zone()?.lookup(alias, query.type);
    if (own !== undefined) {
      // One step: an alias of the cluster that leads to another alias ends here.
      return encode(query, { ...own, answers: [...answer.answers, ...own.answers] });
    }
    const records = await this.forwarder.resolveAlias(alias, query.typeNumber, address);
    this.counts.forwarded += 1;
    if (records === undefined) {
      this.counts.failed += 1;
      return encode(query, noAnswer('SERVFAIL'));
    }
    return encode(query, { ...answer, answers: [...answer.answers, ...records] });
  }

  private rotated(answer: ZoneAnswer): ZoneAnswer {
    this.rotation = (this.rotation + 1) % 0x1_0000;
    const at = this.rotation % answer.answers.length;
    const answers = [...answer.answers.slice(at), ...answer.answers.slice(0, at)];
    return { ...answer, answers };
  }

  private async forward(
    query: DnsQuery,
    address: string,
    maxBytes: number,
  ): Promise<Buffer | undefined> {
    // A name without dots is never a public name, and search domains of the host do not apply here.
    if (!query.name.includes('.')) return this.refuse(query, 'NXDOMAIN');
    this.counts.forwarded += 1;
    const result = await this.forwarder.forward(query, address);
    if (result.kind === 'failed') {
      this.counts.failed += 1;
      if (result.reason === 'rebinding') {
        this.counts.rebinding += 1;
        this.options.log.warn('refused an address of a foreign name', { name: query.name });
        return this.refuse(query, 'REFUSED');
      }
      return this.refuse(query, 'SERVFAIL');
    }
    const response = Buffer.from(result.response);
    query.message.copy(response, 0, 0, 2);
    query.message.copy(response, 12, 12, query.questionEnd);
    response[2] = ((response[2] ?? 0) & ~0x04) | ((query.message[2] ?? 0) & 0x01); // not authoritative
    response[3] = (response[3] ?? 0) | 0x80;
    if (response.length <= maxBytes) return response;
    return truncated(response, query.questionEnd);
  }

  private refuse(query: DnsQuery, code: ResponseCode): Buffer {
    if (code === 'REFUSED') this.counts.refused += 1;
    return respondFrom(
      encodeResponse(query, { ...noAnswer('NOERROR'), code, isAuthoritative: false }),
      query,
      {
        recursionAvailable: code !== 'REFUSED',
        maxBytes: query.maxUdpBytes,
      },
    );
  }

  private applyLimit(response: Buffer, address: string): Buffer | undefined {
    const verdict = this.limit.check(address, this.options.clock.now());
    if (verdict === 'send') return response;
    this.counts.limited += 1;
    if (verdict === 'drop' || response.length < 12) return undefined;
    const parsed = parseQuestionEnd(response);
    return parsed === undefined ? undefined : truncated(response, parsed);
  }

  private noteFault(reason: unknown): void {
    this.options.log.error('a DNS question failed', errorFields(reason));
  }
}

const noteNothing = (): void => undefined;

function noAnswer(code: ZoneAnswer['code']): ZoneAnswer {
  return { code, answers: [], authorities: [], additionals: [], alias: undefined };
}

function encode(query: DnsQuery, answer: ZoneAnswer): Buffer {
  return encodeResponse(query, { ...answer, isAuthoritative: answer.code !== 'SERVFAIL' });
}

/** `localhost` never leaves the machine. @see RFC 6761, section 6.3 */
function localhostAnswer({ name, type }: DnsQuery): ZoneAnswer | undefined {
  if (name !== 'localhost' && !name.endsWith('.localhost')) return undefined;
  const record = (kind: 'A' | 'AAAA', address: string): ZoneRecord => ({
    name,
    ttlSeconds: 5,
    type: kind,
    address,
  });
  const answers = [record('A', '127.0.0.1'), record('AAAA', '::1')].filter(
    (each) => each.type === type,
  );
  return { ...noAnswer('NOERROR'), answers };
}

/** Returns the end of the question of a response that this server wrote. */
function parseQuestionEnd(response: Buffer): number | undefined {
  if (response.readUInt16BE(4) !== 1) return undefined;
  let offset = 12;
  while (offset < response.length && (response[offset] ?? 0) !== 0) {
    offset += (response[offset] ?? 0) + 1;
  }
  return offset + 5 <= response.length ? offset + 5 : undefined;
}

/** The header and the question with the mark "truncated". */
function truncated(response: Buffer, questionEnd: number): Buffer {
  const short = Buffer.from(response.subarray(0, questionEnd));
  short[2] = (short[2] ?? 0) | 0x02;
  short.fill(0, 6, 12);
  return short;
}
