import type { Random } from '@cloudless/base';
import {
  RevisionConflictError,
  type Compare,
  type Operation,
  type StateStore,
} from '../state-store.js';
import { HistoryRecorder } from './history.js';
import {
  recordStoreCalls,
  type StoreCall,
  type StoreInput,
  type StoreOutput,
} from './store-history.js';

export interface ConcurrentClientsOptions {
  /** Source of the calls. */
  readonly random: Random;
  /** Number of clients that call at the same time. */
  readonly clients: number;
  /** Number of calls of each client. */
  readonly callsPerClient: number;
  /** Number of keys that the clients share. The fewer, the more conflicts. Default 4. */
  readonly keys?: number;
  /** Prefix of all keys. Default `/history/`. */
  readonly prefix?: string;
  /** Store of each client. Default: all clients use `store`. */
  readonly storeOf?: (client: number) => StateStore;
}

/**
 * Lets concurrent clients call a store: reads, ranges, and transactions over several keys with
 * conditions on what the client read before. Failed calls do not end a client.
 * @returns The recorded calls, for `checkStoreHistory`.
 */
export async function runConcurrentClients(
  store: StateStore,
  options: ConcurrentClientsOptions,
): Promise<readonly StoreCall[]> {
  const recorder = new HistoryRecorder<StoreInput, StoreOutput>();
  const { clients, storeOf = () => store } = options;
  await Promise.all(
    Array.from({ length: clients }, (_, index) => {
      const client = `client-${index + 1}`;
      return new Client(recordStoreCalls(storeOf(index), recorder, client), client, options).run();
    }),
  );
  return recorder.calls;
}

class Client {
  private writes = 0;
  private readonly keys: readonly string[];
  /** What this client last read of each key. */
  private readonly known = new Map<string, Compare['is']>();

  constructor(
    private readonly store: StateStore,
    private readonly name: string,
    private readonly options: ConcurrentClientsOptions,
  ) {
    const { keys = 4, prefix = '/history/' } = options;
    this.keys = Array.from({ length: keys }, (_, index) => `${prefix}${index}`);
  }

  async run(): Promise<void> {
    for (let call = 0; call < this.options.callsPerClient; call += 1) {
      try {
        await this.callOnce();
      } catch (reason) {
        // What was known may be outdated; the recorder has the failure.
        if (reason instanceof RevisionConflictError) this.known.set(reason.scope, reason.changedAt);
      }
    }
  }

  private async callOnce(): Promise<void> {
    const { prefix = '/history/' } = this.options;
    const key = this.pickKey();
    const choice = this.options.random.next();
    if (choice < 0.25) {
      const entry = await this.store.get(key);
      this.known.set(key, entry?.modRevision ?? 'absent');
    } else if (choice < 0.35) {
      for (const entry of (await this.store.range({ prefix })).entries)
        this.known.set(entry.key, entry.modRevision);
    } else if (choice < 0.4) await this.store.revision();
    else await this.write(key);
  }

  /** Puts one key, sometimes changes a second one too, mostly under conditions. */
  private async write(key: string): Promise<void> {
    const { random } = this.options;
    const other = this.pickKey();
    const value = new TextEncoder().encode(`${this.name}/${(this.writes += 1)}`);
    const operations: Operation[] = [{ put: key, value }];
    if (other !== key && random.next() < 0.4)
      operations.push(random.next() < 0.4 ? { delete: other } : { put: other, value });
    const compares = [key, other]
      .slice(0, random.next() < 0.3 ? 0 : random.next() < 0.5 ? 1 : 2)
      .flatMap((compared, index, all): Compare[] => {
        const is = this.known.get(compared);
        return is === undefined || all.indexOf(compared) !== index ? [] : [{ key: compared, is }];
      });
    const { revision } = await this.store.txn(compares, operations);
    for (const operation of operations)
      if ('put' in operation) this.known.set(operation.put, revision);
      else this.known.set(operation.delete, 'absent');
  }

  private pickKey(): string {
    return this.keys[Math.floor(this.options.random.next() * this.keys.length)] ?? '';
  }
}
