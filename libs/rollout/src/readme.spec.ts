import { readFileSync } from 'node:fs';
import { toReplicaId } from '@cloudless/base';
import {
  predictRollout,
  decideNextSteps,
  resolveLimits,
  type RolloutObserved,
  type RolloutReplica,
  type RolloutStrategy,
} from './index.js';

/** The code between the marks below is the example of the README, word for word. */
function example(console: { readonly log: (line: string) => void }): void {
  // README begin
  const replica = (sequence: number, version: number, available = true): RolloutReplica => ({
    id: toReplicaId(`web-${sequence}`),
    version,
    available,
    desired: 'running',
    lost: false,
    draining: false,
    createdSequence: sequence,
  });
  const decide = (observed: RolloutObserved): void => {
    const decision = decideNextSteps(observed);
    if (decision.kind === 'steps')
      for (const step of decision.steps) console.log(JSON.stringify(step));
    else console.log(decision.kind === 'waiting' ? decision.reason.text : 'done');
  };

  // Three replicas of version 1; version 2 is wanted; all three must stay available.
  // Limits: want 3, minAvailable 3, maxSurge 1, batch 1. So one replica is created first.
  const limits = resolveLimits({ desired: 3, minAvailable: 3 });
  const three = [replica(1, 1), replica(2, 1), replica(3, 1)];
  decide({ ...limits, version: 2, replicas: three });
  // prints: {"kind":"createReplica","version":2}
  decide({ ...limits, version: 2, replicas: [...three, replica(4, 2, false)] });
  // prints: 3 of 3 replicas are ready, 1 extra not yet
  decide({ ...limits, version: 2, replicas: [...three, replica(4, 2)] });
  // prints: {"kind":"stopReplica","replicaId":"web-3"}

  // A canary step: one replica of version 2.
  const canary: RolloutStrategy = { kind: 'rollingUpdate', updated: 1 };
  const mixed = [replica(1, 1), replica(2, 1), replica(4, 2)];
  decide({ ...limits, version: 2, baseVersion: 1, strategy: canary, replicas: mixed });
  // prints: 1 of 3 replicas run version 2, as the canary step requires

  // A prediction of the whole rollout as blue/green.
  const blueGreen: RolloutStrategy = { kind: 'blueGreen', activeVersion: 1, maySwitch: true };
  const { steps, outcome, lowestAvailable, highestLive } = predictRollout({
    ...limits,
    version: 2,
    strategy: blueGreen,
    replicas: three,
  });
  console.log(steps.map(({ step }) => step.kind.replace(/[A-Z].*/, '')).join(' '));
  // prints: create create create switch stop stop stop
  console.log(
    `${outcome.kind}: at least ${lowestAvailable} available, at most ${highestLive} live`,
  );
  // prints: completes: at least 3 available, at most 6 live
  // README end
}

/** The code between the marks of this file, without their indentation. */
function codeHere(): string {
  const source = readFileSync(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const code = source.split('  // README begin\n')[1]?.split('  // README end\n')[0] ?? '';
  return code.replace(/^ {2}/gm, '');
}

describe('example of the README', () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const block = /```ts\n(?<code>.*?)```/s.exec(readme)?.groups?.['code'] ?? '';
  const body = block.replace(/^import .*\n/gm, '').trimStart();

  it('is the code of this spec', () => {
    expect(body).not.toBe('');
    expect(body).toBe(codeHere());
  });

  it('prints what its comments say', () => {
    const printed: string[] = [];
    example({ log: (line) => void printed.push(line) });
    const said = [...body.matchAll(/^\/\/ prints: (?<said>.*)$/gm)].map(
      (match) => match.groups?.['said'],
    );
    expect(printed).toEqual(said);
    expect(printed).toHaveLength(6);
  });
});
