import fc from 'fast-check';
import { createSeededRandom } from '@cloudless/base';
import {
  HistoryRecorder,
  checkLinearizable,
  createRegisterModel,
  type RecordedCall,
  type RegisterInput,
  type RegisterOutput,
} from './index.js';

type Call = RecordedCall<RegisterInput<string>, RegisterOutput<string>>;

const model = createRegisterModel<string>();

const call = (
  client: string,
  calledAt: number,
  returnedAt: number | undefined,
  input: RegisterInput<string>,
  output: RegisterOutput<string> = { kind: 'written' },
): Call =>
  returnedAt === undefined
    ? { client, input, calledAt }
    : { client, input, calledAt, result: { output, returnedAt } };

const write = (client: string, from: number, to: number | undefined, value: string): Call =>
  call(client, from, to, { kind: 'write', register: 'x', value });
const read = (client: string, from: number, to: number, value: string | undefined): Call =>
  call(client, from, to, { kind: 'read', register: 'x' }, { kind: 'value', value });
const compareAndSet = (
  client: string,
  from: number,
  to: number | undefined,
  expected: string | undefined,
  value: string,
  kind: 'written' | 'refused' = 'written',
): Call =>
  call(client, from, to, { kind: 'compareAndSet', register: 'x', expected, value }, { kind });

describe('checkLinearizable', () => {
  it.each<{ name: string; calls: readonly Call[] }>([
    { name: 'no calls', calls: [] },
    { name: 'a read of a finished write', calls: [write('a', 1, 2, 'v'), read('b', 3, 4, 'v')] },
    {
      name: 'reads of either value during a write',
      calls: [write('a', 1, 9, 'v'), read('b', 2, 3, undefined), read('c', 4, 5, 'v')],
    },
    {
      name: 'two concurrent writes in the order that the later reads show',
      calls: [write('a', 1, 5, 'v'), write('b', 2, 4, 'w'), read('c', 6, 7, 'v')],
    },
    {
      name: 'a write with an unknown outcome that takes effect late',
      calls: [write('a', 1, undefined, 'v'), read('b', 2, 3, undefined), read('b', 4, 5, 'v')],
    },
    {
      name: 'a write with an unknown outcome that never takes effect',
      calls: [
        write('a', 1, undefined, 'v'),
        read('b', 2, 3, undefined),
        read('b', 4, 5, undefined),
      ],
    },
    {
      name: 'a refused compare-and-set beside the one that won',
      calls: [
        compareAndSet('a', 1, 4, undefined, 'v'),
        compareAndSet('b', 2, 3, undefined, 'w', 'refused'),
      ],
    },
    {
      name: 'a compare-and-set with an unknown outcome that explains the refusal of another one',
      calls: [
        compareAndSet('a', 1, undefined, undefined, 'v'),
        compareAndSet('b', 2, 3, undefined, 'w', 'refused'),
      ],
    },
  ])('accepts $name', ({ calls }) => {
    expect(checkLinearizable(model, calls)).toEqual({ kind: 'linearizable' });
  });

  it.each<{ name: string; calls: readonly Call[]; message: RegExp }>([
    {
      name: 'a stale read',
      calls: [write('a', 1, 2, 'v'), write('a', 3, 4, 'w'), read('b', 5, 6, 'v')],
      message: /^x: no order explains .* of b; the 2 calls before it lead to value w$/,
    },
    {
      name: 'a read that goes back in time',
      calls: [write('a', 1, 9, 'v'), read('b', 2, 3, 'v'), read('c', 4, 5, undefined)],
      message: /of c/,
    },
    {
      name: 'a read from the future',
      calls: [read('b', 1, 2, 'v'), write('a', 3, 4, 'v')],
      message: /of b/,
    },
    {
      name: 'a lost update: two compare-and-sets on one value succeed',
      calls: [compareAndSet('a', 1, 3, undefined, 'v'), compareAndSet('b', 2, 4, undefined, 'w')],
      message: /no order explains/,
    },
    {
      name: 'a write with an unknown outcome that took effect twice',
      calls: [
        write('a', 1, undefined, 'v'),
        read('b', 2, 3, 'v'),
        write('b', 4, 5, 'w'),
        read('b', 6, 7, 'v'),
      ],
      message: /of b/,
    },
    {
      name: 'a lost write',
      calls: [write('a', 1, 2, 'v'), read('b', 3, 4, undefined)],
      message: /of b/,
    },
  ])('finds $name', ({ calls, message }) => {
    expect(checkLinearizable(model, calls)).toEqual({
      kind: 'violation',
      message: expect.stringMatching(message),
    });
  });

  it('checks registers one by one, so that many clients take few steps', () => {
    const calls = Array.from({ length: 400 }, (_, index): Call => {
      const register = `register-${index % 40}`;
      return call('a', 1, 2, { kind: 'write', register, value: `${index}` });
    });
    expect(checkLinearizable(model, calls, { maxSteps: 10 })).toEqual({ kind: 'linearizable' });
  });

  it('says that a search was given up instead of calling the history correct', () => {
    const calls = Array.from({ length: 12 }, (_, index) => write('a', 1, 50, `${index}`));
    expect(
      checkLinearizable(model, [...calls, read('b', 60, 61, 'none')], { maxSteps: 100 }),
    ).toEqual({ kind: 'undecided', message: 'x: given up after 100 steps' });
  });

  it('tries only one of equal calls with an unknown outcome', () => {
    const equal = {
      ...model,
      toUnknownKey: (input: RegisterInput<string>) => JSON.stringify(input),
    };
    const calls = [
      ...Array.from({ length: 30 }, () => write('a', 1, undefined, 'v')),
      ...['w', 'v', 'w', 'v'].map((value, index) => read('b', 2 + 2 * index, 3 + 2 * index, value)),
      write('c', 1, 10, 'w'),
    ];
    const limit = { maxSteps: 1_000 };
    expect(checkLinearizable(model, calls, limit).kind).toBe('undecided');
    expect(checkLinearizable(equal, calls, limit).kind).toBe('violation');
  });

  it('accepts whatever a register does, and finds every read that is replaced by an older one', () => {
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 2, max: 6 }), (seed, clients) => {
        const calls = runRegister(seed, clients);
        expect(checkLinearizable(model, calls).kind).toBe('linearizable');
        const stale = makeLastReadStale(calls);
        if (stale !== undefined) expect(checkLinearizable(model, stale).kind).toBe('violation');
      }),
      { numRuns: 150 },
    );
  });
});

describe('HistoryRecorder', () => {
  it('records the order of calls and returns, and leaves a rejected call without a result', async () => {
    const recorder = new HistoryRecorder<string, string>();
    const first = recorder.record('a', 'slow', () => Promise.resolve('done'));
    const failed = recorder.record('b', 'lost', () => Promise.reject(new Error('timeout')));
    await expect(failed).rejects.toThrow('timeout');
    await first;
    expect(recorder.calls).toEqual([
      { client: 'a', input: 'slow', calledAt: 1, result: { output: 'done', returnedAt: 3 } },
      { client: 'b', input: 'lost', calledAt: 2 },
    ]);
  });
});

/** Runs random calls on a correct register; each call takes effect somewhere in its duration. */
function runRegister(seed: number, clients: number): readonly Call[] {
  const random = createSeededRandom(seed);
  const effects: { readonly at: number; readonly run: () => void }[] = [];
  const calls: Call[] = [];
  let value: string | undefined;
  for (let client = 0; client < clients; client += 1) {
    let now = random.next();
    for (let count = 0; count < 8; count += 1) {
      const [calledAt, returnedAt] = [now, now + random.next() * 4];
      const at = calledAt + random.next() * (returnedAt - calledAt);
      now = returnedAt + random.next();
      const isKnown = random.next() < 0.85;
      const written = `${client}.${count}`;
      const end = isKnown ? returnedAt : undefined;
      if (random.next() < 0.5)
        effects.push({ at, run: () => calls.push(read(`${client}`, calledAt, returnedAt, value)) });
      else
        effects.push({
          at: isKnown ? at : at + random.next() * 10,
          run: () => {
            calls.push(write(`${client}`, calledAt, end, written));
            // The effect of some calls with an unknown outcome never happens.
            if (isKnown || random.next() < 0.5) value = written;
          },
        });
    }
  }
  for (const { run } of effects.sort((a, b) => a.at - b.at)) run();
  return calls;
}

/** Adds two reads after everything: the newest value, and then a value that was never newer. */
function makeLastReadStale(calls: readonly Call[]): readonly Call[] | undefined {
  const values = calls.flatMap(({ input, result }) =>
    input.kind === 'write' && result !== undefined ? [input.value ?? ''] : [],
  );
  const [older] = values;
  if (older === undefined || values.length < 2) return undefined;
  return [
    ...calls,
    write('late', 1_000, 1_001, 'newest'),
    read('late', 1_002, 1_003, 'newest'),
    read('late', 1_004, 1_005, older),
  ];
}
