import { decode } from 'dns-packet';
import type { Clock } from '@cloudless/base';
import type { AddressRange, ZoneRecord } from '@cloudless/network';
import { HEADER_BYTES, MAX_UDP_BYTES, type DnsQuery } from './dns-query.js';
import { askResolver, type Exchange } from './exchange.js';
import { isRebindingAddress } from './rebinding.js';
import type { Resolver } from './resolvers.js';

/** Bounds of forwarding. */
export interface ForwardLimits {
  /** Different questions that wait for resolvers at a time. */
  readonly maxQuestions: number;
  /** Clients that wait for one question at a time. */
  readonly maxWaiting: number;
  /** Questions of one client address that wait at a time. */
  readonly maxPerClient: number;
  /** Time for one resolver, milliseconds. */
  readonly attemptMs: number;
}

/** The bounds of a server that sets none. */
export const DEFAULT_FORWARD_LIMITS: ForwardLimits = {
  maxQuestions: 512,
  maxWaiting: 256,
  maxPerClient: 128,
  attemptMs: 1_500, // three resolvers within the 5 s for which glibc waits
};

/** Options of a {@link Forwarder}. */
export interface ForwarderOptions {
  /** Returns the resolvers of the host, best first. */
  readonly resolvers: () => readonly Resolver[];
  /** Range of virtual addresses; undefined until settings are known. */
  readonly range: () => AddressRange | undefined;
  readonly clock: Clock;
  readonly limits?: Partial<ForwardLimits> | undefined;
  /** Default: UDP and TCP. */
  readonly exchange?: Exchange | undefined;
}

/** Result of a forwarded question. */
export type ForwardResult =
  | { readonly kind: 'answered'; readonly response: Buffer }
  | {
      readonly kind: 'failed';
      /**
       * `noResolver`: the host has none; `busy`: too many questions wait; `rebinding`: the answer
       * leads into the cluster or to the own machine; `noAnswer`: no resolver answered in time.
       */
      readonly reason: 'noResolver' | 'busy' | 'rebinding' | 'noAnswer';
    };

/** A question that waits for resolvers. */
interface Pending {
  readonly result: Promise<ForwardResult>;
  waiting: number;
}

/**
 * Sends questions about names outside the cluster to the resolvers of the host. Equal questions that
 * wait share one request: a resolver that sends the question back to this server waits for itself
 * until its time is over, and no loop arises.
 */
export class Forwarder {
  private readonly pending = new Map<string, Pending>();
  private readonly perClient = new Map<string, number>();
  private readonly limits: ForwardLimits;

  constructor(private readonly options: ForwarderOptions) {
    this.limits = { ...DEFAULT_FORWARD_LIMITS, ...options.limits };
  }

  /** Number of different questions that wait. */
  get waitingQuestions(): number {
    return this.pending.size;
  }

  /** Forwards a question of a client. Never rejects. */
  async forward(query: DnsQuery, clientAddress: string): Promise<ForwardResult> {
    const ofClient = this.perClient.get(clientAddress) ?? 0;
    if (ofClient >= this.limits.maxPerClient) return { kind: 'failed', reason: 'busy' };
    this.perClient.set(clientAddress, ofClient + 1);
    try {
      return await this.join(toQuestion(query.message, query.questionEnd, query.hasEdns));
    } finally {
      const left = (this.perClient.get(clientAddress) ?? 1) - 1;
      if (left > 0) this.perClient.set(clientAddress, left);
      else this.perClient.delete(clientAddress);
    }
  }

  /**
   * Resolves the target of an alias for a client.
   * @returns Its CNAME, A and AAAA records; undefined when resolvers fail.
   */
  async resolveAlias(
    target: string,
    typeNumber: number,
    clientAddress: string,
  ): Promise<readonly ZoneRecord[] | undefined> {
    const message = encodeQuestion(target, typeNumber);
    const query = { message, questionEnd: message.length, hasEdns: false } as DnsQuery;
    const result = await this.forward(query, clientAddress);
    return result.kind === 'answered' ? recordsOf(result.response) : undefined;
  }

  private async join(question: Buffer): Promise<ForwardResult> {
    const key = question.toString('latin1', 2).toLowerCase();
    let pending = this.pending.get(key);
    if (pending === undefined) {
      if (this.pending.size >= this.limits.maxQuestions) return { kind: 'failed', reason: 'busy' };
      // Asked after the question is noted: it may come back at once.
      const result = Promise.resolve()
        .then(() => this.ask(question))
        .finally(() => this.pending.delete(key));
      pending = { result, waiting: 0 };
      this.pending.set(key, pending);
    }
    if (pending.waiting >= this.limits.maxWaiting) return { kind: 'failed', reason: 'busy' };
    pending.waiting += 1;
    return pending.result;
  }

  private async ask(question: Buffer): Promise<ForwardResult> {
    const { resolvers, exchange = askResolver, range } = this.options;
    const known = resolvers();
    if (known.length === 0) return { kind: 'failed', reason: 'noResolver' };
    let refusal: Buffer | undefined;
    for (const resolver of known) {
      try {
        const response = await exchange(resolver, question, this.limits.attemptMs);
        const code = (response[3] ?? 0) & 15;
        // SERVFAIL, NOTIMP, REFUSED: another resolver may know more.
        if (code === 2 || code === 4 || code === 5) {
          refusal = response;
          continue;
        }
        const isRebinding = recordsOf(response).some(
          (record) => 'address' in record && isRebindingAddress(record.address, range()),
        );
        if (isRebinding) return { kind: 'failed', reason: 'rebinding' };
        return { kind: 'answered', response };
      } catch {
        // The next resolver may answer.
      }
    }
    return refusal === undefined
      ? { kind: 'failed', reason: 'noAnswer' }
      : { kind: 'answered', response: refusal };
  }
}

/** The question alone, with "recursion desired" and, for clients with EDNS, an OPT record. */
function toQuestion(message: Buffer, questionEnd: number, hasEdns: boolean): Buffer {
  const question = Buffer.alloc(questionEnd + (hasEdns ? 11 : 0));
  message.copy(question, HEADER_BYTES, HEADER_BYTES, questionEnd);
  question.writeUInt16BE(0x0100, 2);
  question.writeUInt16BE(1, 4);
  if (hasEdns) {
    question.writeUInt16BE(1, 10);
    question.writeUInt16BE(41, questionEnd + 1);
    question.writeUInt16BE(MAX_UDP_BYTES, questionEnd + 3);
  }
  return question;
}

function encodeQuestion(name: string, typeNumber: number): Buffer {
  const labels = name.split('.').map((label) => {
    const bytes = Buffer.from(label, 'latin1').subarray(0, 63);
    return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  });
  const end = Buffer.alloc(5);
  end.writeUInt16BE(typeNumber, 1);
  end.writeUInt16BE(1, 3);
  return Buffer.concat([Buffer.alloc(HEADER_BYTES), ...labels, end]);
}

/**
 * Returns the address and alias records of the answers of a response, also of its further sections.
 * @throws when the response is malformed.
 */
function recordsOf(response: Buffer): readonly ZoneRecord[] {
  const { answers = [], additionals = [] } = decode(response);
  return [...answers, ...additionals].flatMap((record): ZoneRecord[] => {
    if (record.type === 'A' || record.type === 'AAAA') {
      const { name, ttl = 0, type, data } = record;
      return [{ name, ttlSeconds: ttl, type, address: data }];
    }
    if (record.type === 'CNAME') {
      return [
        { name: record.name, ttlSeconds: record.ttl ?? 0, type: 'CNAME', target: record.data },
      ];
    }
    return [];
  });
}
