import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { ReplicaReportSchema } from '@cloudless/api';
import { ReportBacklog, toReportKey, type QueuedReport } from './report-backlog.js';

const arbStep = fc.record({
  kind: fc.constantFrom('add', 'add', 'take', 'finish', 'putBack', 'takeSeparate', 'wait'),
  nodeId: fc.constantFrom('n1', 'n2'),
  replicaId: fc.constantFrom('a', 'b', 'c'),
  pick: fc.nat(9),
  separately: fc.boolean(),
});

/** A taken report, and a copy of its fields at the time when the report was taken. */
interface TakenReport {
  readonly queued: QueuedReport;
  readonly asTaken: QueuedReport;
}

/** A call of `whenWritten`, with the numbers of the reports that it waits for. */
interface Wait {
  readonly missing: Map<string, number>;
  ended: boolean;
}

describe('ReportBacklog', () => {
  it('has the unwritten reports, and ends a wait when all earlier ones, or newer ones, are written', () => {
    fc.assert(
      fc.property(fc.array(arbStep, { maxLength: 80, size: 'max' }), (steps) => {
        const backlog = new ReportBacklog();
        const unwritten = new Map<string, { nodeId: string; number: number }>();
        const taken: TakenReport[] = [];
        const waits: { readonly model: Wait; ended: boolean }[] = [];
        let count = 0;
        for (const { kind, nodeId, replicaId, pick, separately } of steps) {
          const key = `${nodeId} ${replicaId}`;
          if (kind === 'add') {
            backlog.add(nodeId, create(ReplicaReportSchema, { replicaId }));
            count += 1;
            unwritten.set(key, { nodeId, number: count });
          } else if (kind === 'wait') {
            const missing = [...unwritten].filter(([, { nodeId: of }]) => of === nodeId);
            const numbers = missing.map(([of, { number }]) => [of, number] as const);
            const wait = {
              model: { missing: new Map(numbers), ended: numbers.length === 0 },
              ended: false,
            };
            waits.push(wait);
            backlog.whenWritten(nodeId, () => (wait.ended = true));
          } else if (kind === 'take' || kind === 'takeSeparate') {
            const queued = kind === 'take' ? backlog.take() : backlog.takeSeparate(key);
            if (queued !== undefined) {
              const keys = taken.map(({ queued: other }) => toReportKey(other));
              expect(keys).not.toContain(toReportKey(queued));
              taken.push({ queued, asTaken: { ...queued } });
            }
          } else {
            const [ended] = taken.splice(pick % Math.max(1, taken.length), 1);
            if (ended === undefined) continue;
            const { queued, asTaken } = ended;
            expect(queued.number).toBe(asTaken.number);
            expect(queued.report).toBe(asTaken.report);
            if (kind === 'putBack') backlog.putBack(queued, separately);
            else {
              backlog.finish(queued);
              const written = toReportKey(queued);
              if (unwritten.get(written)?.number === queued.number) unwritten.delete(written);
              for (const { model } of waits) {
                const needed = model.missing.get(written);
                if (needed !== undefined && needed <= queued.number) model.missing.delete(written);
                model.ended ||= model.missing.size === 0;
              }
            }
          }
          expect(waits.map(({ ended }) => ended)).toEqual(waits.map(({ model }) => model.ended));
          expect(backlog.has(nodeId, replicaId)).toBe(unwritten.has(key));
        }
        for (const { queued } of taken) backlog.finish(queued);
        for (const { queued } of taken)
          if (unwritten.get(toReportKey(queued))?.number === queued.number)
            unwritten.delete(toReportKey(queued));
        const rest = [...unwritten.keys()].map(
          (key) => backlog.takeSeparate(key) ?? backlog.take(),
        );
        const numbers = rest.map((queued) => queued?.number ?? 0).sort((a, b) => a - b);
        expect(numbers).toEqual(
          [...unwritten.values()].map((of) => of.number).sort((a, b) => a - b),
        );
        expect(backlog.take()).toBeUndefined();
        expect(backlog.size).toBe(0);
      }),
      { numRuns: 500 },
    );
  });

  it('returns each of thousands of reports once, and last the one that had to wait', () => {
    const backlog = new ReportBacklog();
    add(backlog, 'busy');
    const busy = backlog.take();
    add(backlog, 'busy'); // waits for the report before
    const ids = Array.from({ length: 3_000 }, (_, index) => `replica-${index}`);
    for (const id of ids) add(backlog, id);
    expect(takeIds(backlog, 2_900)).toEqual(ids.slice(0, 2_900));
    if (busy !== undefined) backlog.finish(busy);
    expect(backlog.size).toBe(101);
    expect(takeIds(backlog, 101)).toEqual([...ids.slice(2_900), 'busy']);
    expect(backlog.take()).toBeUndefined();
    expect(backlog.size).toBe(0);
  });

  it('returns a report that had to wait before newer ones, after the newest was reached', () => {
    const backlog = new ReportBacklog();
    add(backlog, 'a');
    const first = backlog.take();
    add(backlog, 'a');
    expect(backlog.take()).toBeUndefined();
    if (first !== undefined) backlog.finish(first);
    add(backlog, 'b');
    expect(takeIds(backlog, 2)).toEqual(['a', 'b']);
  });
});

function add(backlog: ReportBacklog, replicaId: string): void {
  backlog.add('n1', create(ReplicaReportSchema, { replicaId }));
}

function takeIds(backlog: ReportBacklog, count: number): readonly (string | undefined)[] {
  return Array.from({ length: count }, () => backlog.take()?.report.replicaId);
}
