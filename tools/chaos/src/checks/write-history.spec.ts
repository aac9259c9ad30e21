import fc from 'fast-check';
import { createSeededRandom } from '@cloudless/base';
import {
  findHistoryFaults,
  type RecordedWorkloadCall,
  type WorkloadAnswer,
  type WorkloadCall,
} from './write-history.js';

const shown = (generation: number, value: string, uid = 'a'): WorkloadAnswer => ({
  kind: 'shown',
  uid,
  generation: BigInt(generation),
  value,
});

/** Calls of one workload, one after the other. */
function toHistory(
  ...calls: readonly (readonly [WorkloadCall['call'], string, WorkloadAnswer?])[]
): readonly RecordedWorkloadCall[] {
  return calls.map(([call, value, output], index) => ({
    client: `client ${index}`,
    input: { call, workload: 'own', value },
    calledAt: index * 2,
    ...(output === undefined ? {} : { result: { output, returnedAt: index * 2 + 1 } }),
  }));
}

const created = ['create', 'x', shown(1, 'x')] as const;

describe('findHistoryFaults', () => {
  it.each([
    {
      name: 'updates that raise the generation by one, and reads of the newest',
      calls: toHistory(created, ['update', 'y', shown(2, 'y')], ['read', '', shown(2, 'y')]),
    },
    {
      name: 'an update without an answer that a later read shows',
      calls: toHistory(created, ['update', 'y'], ['read', '', shown(2, 'y')]),
    },
    {
      name: 'an update without an answer that never took effect',
      calls: toHistory(created, ['update', 'y'], ['update', 'z', shown(2, 'z')]),
    },
    {
      name: 'a workload that disappears after its deletion and is created again',
      calls: toHistory(
        created,
        ['delete', '', shown(1, 'x')],
        ['read', '', shown(1, 'x')],
        ['read', '', { kind: 'notFound' }],
        ['create', 'y', shown(1, 'y', 'b')],
      ),
    },
    { name: 'a read without an answer', calls: toHistory(created, ['read', '']) },
  ])('accepts $name', ({ calls }) => {
    expect(findHistoryFaults(calls)).toEqual([]);
  });

  it.each([
    {
      name: 'a read of an older write',
      calls: toHistory(created, ['update', 'y', shown(2, 'y')], ['read', '', shown(1, 'x')]),
    },
    {
      name: 'an update that took effect twice',
      calls: toHistory(created, ['update', 'y', shown(2, 'y')], ['read', '', shown(3, 'y')]),
    },
    {
      name: 'an update that was acknowledged and lost',
      calls: toHistory(created, ['update', 'y', shown(2, 'y')], ['update', 'z', shown(2, 'z')]),
    },
    {
      name: 'a creation that was acknowledged and lost',
      calls: toHistory(created, ['read', '', { kind: 'notFound' }]),
    },
    {
      name: 'a deleted workload that comes back',
      calls: toHistory(
        created,
        ['delete', '', shown(1, 'x')],
        ['read', '', { kind: 'notFound' }],
        ['read', '', shown(1, 'x')],
      ),
    },
    {
      name: 'an update of a workload with another uid',
      calls: toHistory(created, ['update', 'y', shown(2, 'y', 'b')]),
    },
  ])('finds $name', ({ calls }) => {
    expect(findHistoryFaults(calls)).toEqual([
      expect.stringMatching(/^NOT LINEARIZABLE: own: no order explains /),
    ]);
  });

  it('accepts concurrent updates in any order of their answers', () => {
    fc.assert(
      fc.property(fc.shuffledSubarray([2, 3, 4, 5, 6], { minLength: 5 }), (generations) => {
        const updates = generations.map((generation, index) => ({
          client: `writer ${index}`,
          input: { call: 'update', workload: 'own', value: `v${generation}` } as const,
          calledAt: 2 + index,
          result: { output: shown(generation, `v${generation}`), returnedAt: 20 - index },
        }));
        expect(findHistoryFaults([...toHistory(created), ...updates])).toEqual([]);
      }),
    );
  });

  it('accepts whatever many writers and readers see of updates that often have no answer', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        expect(findHistoryFaults(runWriters(seed))).toEqual([]);
      }),
      { numRuns: 10 },
    );
  });

  it('finds an acknowledged update that is lost among many updates without an answer', () => {
    const calls = Array.from({ length: 40 }, (_, index): RecordedWorkloadCall => ({
      client: `writer ${index}`,
      input: { call: 'update', workload: 'own', value: `v${index}` },
      calledAt: 2,
    }));
    const kept = toHistory(created, ['update', 'y', shown(2, 'y')], ['update', 'z', shown(2, 'z')]);
    expect(findHistoryFaults([...kept, ...calls])).toEqual([
      expect.stringMatching(/^NOT LINEARIZABLE: own: no order explains update z/),
    ]);
  });
});

/**
 * Lets 20 writers update one workload, and 4 readers read it. A tenth of the updates has no answer:
 * half of these take effect, many only after the next update of their writer.
 */
function runWriters(seed: number): readonly RecordedWorkloadCall[] {
  const random = createSeededRandom(seed);
  const calls: RecordedWorkloadCall[] = [...toHistory(created)];
  const effects: { readonly at: number; readonly run: () => void }[] = [];
  let state = { generation: 1, value: 'x' };
  const add = (client: string, input: WorkloadCall, from: number, to: number): void => {
    const isKnown = input.call === 'read' || random.next() < 0.9;
    const isLost = !isKnown && random.next() < 0.5;
    const at = from + random.next() * (to - from) + (isKnown ? 0 : random.next() * 10);
    effects.push({
      at,
      run: () => {
        if (input.call === 'update' && !isLost)
          state = { generation: state.generation + 1, value: input.value };
        const output = shown(state.generation, state.value);
        const result = isKnown ? { result: { output, returnedAt: to } } : {};
        calls.push({ client, input, calledAt: from, ...result });
      },
    });
  };
  for (let client = 0; client < 24; client += 1) {
    const isReader = client >= 20;
    let now = 2 + random.next() * 5;
    for (let count = 0; count < (isReader ? 20 : 8); count += 1) {
      const input = isReader
        ? ({ call: 'read', workload: 'own', value: '' } as const)
        : ({ call: 'update', workload: 'own', value: `w${client}-${count}` } as const);
      const to = now + (random.next() < 0.1 ? 20 : 1) * random.next();
      add(`client ${client}`, input, now, to);
      now = to + random.next() * (isReader ? 2 : 5);
    }
  }
  for (const { run } of effects.sort((a, b) => a.at - b.at)) run();
  return calls;
}
