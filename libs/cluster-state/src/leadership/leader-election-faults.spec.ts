import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { NodeRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { openClusterState, type ClusterState, type LeaderElection } from '../index.js';
import { decodeRecord, parseKey } from '../records/records.js';
import { FaultyProcess } from '../testing/faulty-process.js';
import type { Transaction } from '../transaction/transaction.js';

/** Time in which faults begin, milliseconds. */
const FAULTS_MS = 8_000;
/** Longest fault, milliseconds: three leases. */
const MAX_FAULT_MS = 5_000;
/** Time after the last fault within which a leader must commit again, milliseconds. */
const RECOVERY_MS = 8_000;

const WRITE_INTERVAL_MS = 200;

interface Fault {
  readonly atMs: number;
  readonly who: number;
  readonly kind: 'pause' | 'cut' | 'stepDown' | 'endLease';
  readonly forMs: number;
}

interface Schedule {
  readonly seed: number;
  readonly faultRatio: number;
  readonly clockRates: readonly number[];
  readonly faults: readonly Fault[];
}

const arbSchedule: fc.Arbitrary<Schedule> = fc.record({
  seed: fc.integer(),
  faultRatio: fc.constantFrom(0, 0.05, 0.3),
  clockRates: fc.array(fc.double({ min: 0.9, max: 1.1, noNaN: true }), {
    minLength: 3,
    maxLength: 3,
  }),
  faults: fc.array(
    fc.record({
      atMs: fc.integer({ min: 0, max: FAULTS_MS }),
      who: fc.integer({ min: 0, max: 3 }), // 3: all
      kind: fc.constantFrom('pause', 'cut', 'stepDown', 'endLease'),
      forMs: fc.integer({ min: 10, max: MAX_FAULT_MS }),
    }),
    { maxLength: 12 },
  ),
});

/** A coordinator that commits all the time, with transactions that it made up to 3 s before. */
class Coordinator {
  readonly acknowledged: { readonly revision: bigint; readonly epoch: string }[] = [];
  private readonly planned: Transaction[] = [];
  private count = 0;

  private constructor(
    readonly process: FaultyProcess,
    readonly state: ClusterState,
    readonly election: LeaderElection,
    private readonly name: string,
  ) {}

  static async start(process: FaultyProcess, index: number, seed: number): Promise<Coordinator> {
    const name = `c${index}`;
    const { clock, store } = process;
    const state = await openClusterState({
      ...{ store, clock, holder: `${name}/1`, log: silentLog, leadership: 'follow' },
      random: createSeededRandom(seed + index),
    });
    const election = state.joinElection({ address: `https://${name}`, coordinatorId: name });
    const coordinator = new Coordinator(process, state, election, name);
    coordinator.write();
    return coordinator;
  }

  private write(): void {
    this.count += 1;
    const epoch = String(this.state.epoch);
    const record = create(NodeRecordSchema, { id: this.name, labels: { epoch } });
    this.planned.push(this.state.transaction().put('node', this.name, record));
    const [oldest] = this.planned;
    if (this.planned.length > this.count % 15 && oldest !== undefined) {
      this.planned.shift();
      const { term } = oldest;
      void this.state.commit(oldest).then(
        (revision) => this.acknowledged.push({ revision, epoch: String(term?.epoch) }),
        () => undefined, // refused, or unknown
      );
    }
    this.process.clock.setTimer(WRITE_INTERVAL_MS, () => this.write());
  }
}

/** Ends the lease of the leader, as an operator may. */
async function endLease(store: StateStore): Promise<void> {
  const entry = await store.get('/leaderlease/leader');
  if (entry?.lease !== undefined) await store.revokeLease(entry.lease);
}

function inject(coordinators: readonly Coordinator[], store: StateStore, fault: Fault): void {
  if (fault.kind === 'endLease') {
    void endLease(store);
    return;
  }
  for (const { process, election } of fault.who === 3
    ? coordinators
    : [coordinators[fault.who] as Coordinator]) {
    if (fault.kind === 'pause') process.pause(fault.forMs);
    else if (fault.kind === 'cut') process.cut(fault.forMs);
    else void election.stepDown();
  }
}

/** Lists the revisions of the store whose writer did not lead by the records of that revision. */
async function listUnfencedWrites(store: StateStore): Promise<string[]> {
  const unfenced: string[] = [];
  let epoch = 0n;
  const stop = new AbortController();
  const newest = await store.revision();
  for await (const { changes, revision } of store.watch({
    ...{ prefix: '', after: 0n, signal: stop.signal },
  })) {
    for (const change of changes) {
      if (change.kind === 'delete') continue;
      const { kind, id } = parseKey(change.entry.key)!;
      if (kind === 'leader') {
        const next = decodeRecord('leader', id, change.entry.value).epoch;
        if (next !== epoch + 1n) unfenced.push(`${revision}: epoch ${next} after ${epoch}`);
        epoch = next;
      } else if (kind === 'node') {
        const writer = decodeRecord('node', id, change.entry.value).labels['epoch'];
        if (writer !== String(epoch)) unfenced.push(`${revision}: ${writer} wrote under ${epoch}`);
      }
    }
    if (revision === newest) stop.abort();
  }
  return unfenced;
}

/** Runs a schedule. Returns everything that must not be. */
async function run({ seed, faultRatio, clockRates, faults }: Schedule): Promise<string[]> {
  const violations: string[] = [];
  const clock = new ManualClock();
  const store = createMemoryStateStore({ clock, historyLimit: 100_000 });
  const random = createSeededRandom(seed);
  const opening = Promise.all(
    clockRates.map((clockRate, index) =>
      Coordinator.start(
        new FaultyProcess({ clock, store, random, clockRate, faultRatio: 0 }),
        index,
        seed,
      ),
    ),
  );
  await clock.advance(200);
  const coordinators = await opening;
  for (const { process } of coordinators) Object.assign(process['options'], { faultRatio });
  for (const fault of faults) clock.setTimer(fault.atMs, () => inject(coordinators, store, fault));
  // When another program ends the lease of a leader that cannot see this, only the fence is left.
  const hasOnlyOwnEnds = faults.every(({ kind }) => kind !== 'endLease');
  const advance = async (durationMs: number): Promise<void> => {
    const endAtMs = clock.now() + durationMs;
    while (await clock.step(endAtMs)) {
      const leaders = coordinators.filter(({ state }) => state.isLeading);
      if (leaders.length > 1 && hasOnlyOwnEnds)
        violations.push(`${clock.now()}: ${leaders.map(({ state }) => state.epoch)} lead`);
    }
  };
  await advance(FAULTS_MS + MAX_FAULT_MS);
  for (const { process } of coordinators) Object.assign(process['options'], { faultRatio: 0 });
  await advance(RECOVERY_MS);
  const leaders = coordinators.filter(({ state }) => state.isLeading);
  if (leaders.length !== 1) violations.push(`${leaders.length} leaders after the faults`);
  const [leader] = leaders;
  const before = leader?.acknowledged.length ?? 0;
  await advance(3_000);
  if (leader === undefined || leader.acknowledged.length === before)
    violations.push('no commits after the faults');
  const newest = await store.revision();
  await advance(500);
  const revisions = coordinators.map(({ state }) => state.view().revision);
  if (revisions.some((revision) => revision < newest))
    violations.push(`views at ${revisions.join(', ')} of ${newest}`);
  violations.push(...(await listUnfencedWrites(store)));
  return violations;
}

describe('elections with pauses, cuts, lost answers and clocks of different speed', () => {
  it('never have two leaders at once, fence every write, and have a leader soon after the faults', async () => {
    await fc.assert(
      fc.asyncProperty(arbSchedule, async (schedule) => {
        expect(await run(schedule)).toEqual([]);
      }),
      { numRuns: 20 },
    );
  });
});
