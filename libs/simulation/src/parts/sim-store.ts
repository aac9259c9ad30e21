import { CloudlessError, type Clock, type Log } from '@cloudless/base';
import { PushQueue } from '@cloudless/runtime';
import { createEngineStore, type ChangeBatch, type StateStore } from '@cloudless/state-store';
import type { NodeFacts } from './node-facts.js';
import type { SimDisk } from './sim-disk.js';
import { SimPipe, type LinkUser, type SimLink } from './sim-link.js';
import { SimProcess } from './sim-process.js';

/** Longest wait for the answer of the store, milliseconds. Afterwards the outcome is unknown. */
const DEADLINE_MS = 2_000;
/** Longest wait for the renewal of a lease, milliseconds. */
const RENEWAL_DEADLINE_MS = 500;
/** Shortest and longest delay until a client notices that its watch was cut, milliseconds. */
const NOTICE_MS = [1, 1_000] as const;
/** Largest number of queued batches of one watch; more indicates a fault of the simulation. */
const QUEUE_LIMIT = 100_000;

/** What one coordinator process needs to reach the store. */
export interface StoreConnection {
  readonly process: SimProcess;
  /** The network between the coordinator (`up` is away from it) and the store. */
  readonly link: SimLink;
  /** Returns the facts about nodes that the coordinator has now. */
  readonly nodeFacts: () => NodeFacts;
  readonly onCommit: (revision: bigint, nodeFacts: NodeFacts) => void;
}

/**
 * A store that several coordinators share over a network, as with an etcd cluster. It never dies,
 * and its leases end on the time of the world.
 */
export class SimStore {
  readonly engine: StateStore;

  constructor(
    private readonly time: Clock,
    disk: SimDisk,
    log: Log,
  ) {
    const process = new SimProcess('store', time, { rate: 1, offsetMs: 0 });
    const { historyLimit } = disk;
    this.engine = createEngineStore({
      storage: disk.openFor(process),
      clock: time,
      historyLimit,
      log,
    });
  }

  /**
   * Returns the store as one coordinator process reaches it: requests and answers are delayed, and
   * may be lost. A write whose answer does not arrive rejects with kind `deadline`; it may still
   * take effect later.
   */
  connect(connection: StoreConnection): StateStore {
    return new StoreClient(this.engine, this.time, connection);
  }
}

class StoreClient implements StateStore, LinkUser {
  /** Grows with each cut; messages that were in flight then are lost. */
  private cuts = 0;

  constructor(
    private readonly engine: StateStore,
    private readonly time: Clock,
    private readonly connection: StoreConnection,
  ) {
    const { link, process } = connection;
    link.join(this);
    process.onDeath(() => link.leave(this));
  }

  get: StateStore['get'] = (key) => this.call(() => this.engine.get(key));
  range: StateStore['range'] = (request) => this.call(() => this.engine.range(request));
  revision: StateStore['revision'] = () => this.call(() => this.engine.revision());
  grantLease: StateStore['grantLease'] = (ttlMs) => this.call(() => this.engine.grantLease(ttlMs));
  revokeLease: StateStore['revokeLease'] = (lease) =>
    this.call(() => this.engine.revokeLease(lease));
  keepAlive: StateStore['keepAlive'] = (lease) =>
    this.call(() => this.engine.keepAlive(lease), RENEWAL_DEADLINE_MS);

  txn: StateStore['txn'] = (compares, operations) => {
    const { nodeFacts, onCommit } = this.connection;
    const facts = nodeFacts();
    return this.call(async () => {
      const committed = await this.engine.txn(compares, operations);
      onCommit(committed.revision, facts);
      return committed;
    });
  };

  watch: StateStore['watch'] = (request) => {
    const { process, link } = this.connection;
    return {
      [Symbol.asyncIterator]: () =>
        process.iterate(
          new StoreWatch({ engine: this.engine, time: this.time, link, process, request }).items,
        ),
    };
  };

  /** The store belongs to all coordinators and stays open. */
  close: StateStore['close'] = () => Promise.resolve();

  onCut(): void {
    this.cuts += 1;
  }

  onReset(): void {
    // Every call has a deadline.
  }

  private call<Result>(perform: () => Promise<Result>, deadlineMs = DEADLINE_MS): Promise<Result> {
    const { process, link } = this.connection;
    return process.call(
      () =>
        new Promise<Result>((resolve, reject) => {
          const { cuts } = this;
          const requestLost = link.random.chance(link.faults.requestLoss);
          const replyLost = link.random.chance(link.faults.replyLoss);
          const timer = this.time.setTimer(deadlineMs, () =>
            reject(new CloudlessError('deadline', 'the store has not answered in time')),
          );
          const answer = (give: () => void): void => {
            if (replyLost || cuts !== this.cuts) return;
            link.transmit('down', () => {
              if (cuts !== this.cuts) return;
              timer.cancel();
              give();
            });
          };
          link.transmit('up', () => {
            if (requestLost || cuts !== this.cuts) return;
            perform().then(
              (value) => answer(() => resolve(value)),
              (reason: unknown) => answer(() => reject(reason as Error)),
            );
          });
        }),
    );
  }
}

interface StoreWatchOptions {
  readonly engine: StateStore;
  readonly time: Clock;
  readonly link: SimLink;
  readonly process: SimProcess;
  readonly request: Parameters<StateStore['watch']>[0];
}

/** One watch over the network: ordered, delayed, and broken by every cut. */
class StoreWatch implements LinkUser {
  readonly items: PushQueue<ChangeBatch>;
  private readonly pipe: SimPipe;
  private readonly ending = new AbortController();
  private isCut = false;

  constructor(private readonly options: StoreWatchOptions) {
    const { time, link, process, request } = options;
    this.pipe = new SimPipe(link, 'down', time);
    this.items = new PushQueue<ChangeBatch>({ limit: QUEUE_LIMIT, onClose: () => this.end() });
    link.join(this);
    process.onDeath(() => this.end());
    request.signal?.addEventListener('abort', () => this.items.end(), { once: true });
    link.transmit('up', () => this.start());
  }

  onCut(): void {
    this.isCut = true;
    this.pipe.drop();
  }

  onReset(): void {
    const { time, link, process } = this.options;
    if (!this.isCut) return;
    time.setTimer(link.random.between(...NOTICE_MS), () =>
      process.run(() => this.items.fail(brokenWatch())),
    );
    this.end();
  }

  private start(): void {
    const { engine, process, request } = this.options;
    const { prefix, after } = request;
    const source = engine
      .watch({ prefix, after, signal: this.ending.signal })
      [Symbol.asyncIterator]();
    const deliver = (action: () => void): void => this.pipe.send(() => process.run(action));
    const next = (): void => {
      source.next().then(
        (result) => {
          if (result.done === true) return deliver(() => this.items.end());
          deliver(() => this.items.push(result.value));
          if (this.pipe.canSend(next)) next();
        },
        (reason: unknown) => deliver(() => this.items.fail(reason as Error)),
      );
    };
    if (!this.isCut) next();
  }

  private end(): void {
    this.pipe.drop();
    this.ending.abort();
    this.options.link.leave(this);
  }
}

function brokenWatch(): CloudlessError {
  return new CloudlessError('unavailable', 'the connection to the store broke');
}
