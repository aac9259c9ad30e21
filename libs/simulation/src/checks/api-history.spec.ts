import type { RecordedCall } from '@cloudless/state-store/linearizability';
import { checkApiHistory, type ApiInput, type ApiOutput } from './api-history.js';

type Call = RecordedCall<ApiInput, ApiOutput>;
let now = 0;

/** A call that begins and ends before the next one. */
function call(kind: ApiInput['call'], output?: ApiOutput): Call {
  const base = { client: kind, input: { call: kind, workload: 'one' }, calledAt: (now += 1) };
  return output === undefined ? base : { ...base, result: { output, returnedAt: (now += 1) } };
}

const shown = (generation: bigint, uid = 'a'): ApiOutput => ({ kind: 'shown', uid, generation });

describe('checkApiHistory', () => {
  it.each<{ name: string; calls: () => readonly Call[] }>([
    {
      name: 'changes that raise the generation, and reads of the newest',
      calls: () => [
        call('create', shown(1n)),
        call('change', shown(2n)),
        call('read', shown(2n)),
        call('change', shown(2n)),
      ],
    },
    {
      name: 'a change with an unknown outcome that a later read shows',
      calls: () => [call('create', shown(1n)), call('change'), call('read', shown(2n))],
    },
    {
      name: 'a generation that a rollback has raised',
      calls: () => [call('create', shown(1n)), call('change', shown(3n)), call('read', shown(4n))],
    },
    {
      name: 'a workload that disappears after its deletion and is created again',
      calls: () => [
        call('create', shown(1n)),
        call('delete', shown(1n)),
        call('read', shown(1n)),
        call('read', { kind: 'notFound' }),
        call('create', shown(1n, 'b')),
        call('create', { kind: 'exists' }),
      ],
    },
    {
      name: 'a creation with an unknown outcome',
      calls: () => [call('create'), call('change', shown(2n))],
    },
  ])('accepts $name', ({ calls }) => {
    expect(checkApiHistory(calls())).toEqual([]);
  });

  it.each<{ name: string; calls: () => readonly Call[] }>([
    {
      name: 'a read that goes back in time',
      calls: () => [call('create', shown(1n)), call('change', shown(2n)), call('read', shown(1n))],
    },
    {
      name: 'a creation that was acknowledged and lost',
      calls: () => [call('create', shown(1n)), call('read', { kind: 'notFound' })],
    },
    {
      name: 'two creations of one name',
      calls: () => [call('create', shown(1n)), call('create', shown(1n, 'b'))],
    },
    {
      name: 'a change of a workload that another creation replaced',
      calls: () => [call('create', shown(1n)), call('change', shown(2n, 'b'))],
    },
  ])('finds $name', ({ calls }) => {
    expect(checkApiHistory(calls())).toEqual([
      expect.stringMatching(/^3: the calls of users: one: no order explains /),
    ]);
  });
});
