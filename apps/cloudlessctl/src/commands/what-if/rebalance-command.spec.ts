import { toJson } from '@bufbuild/protobuf';
import {
  CreatePlanRequestSchema,
  ProposeMovesRequestSchema,
  WorkloadPlan_Action as Action,
} from '@cloudless/api';
import { getTextWidth } from '../../output/text-width.js';
import { aWorkload, runCli, type CliOptions } from '../../testing/run-cli.js';

const aMove = (replicaId: string, name = 'web') => ({
  ...{ namespace: 'default', name, replicaId, fromNodeId: 'node-1', toNodeId: 'node-3' },
  ...{ gain: 2, reason: 'zone b has 1 replica and zone a has 3' },
});

async function rebalance(words: readonly string[], moves = [aMove('web-1'), aMove('web-2')]) {
  const calls: unknown[] = [];
  const options: CliOptions = {
    columns: 80,
    isTTY: words.includes('--plan'),
    coordinator: {
      proposeMoves: (request) => {
        calls.push(toJson(ProposeMovesRequestSchema, request));
        return { moves, gain: 2 * moves.length };
      },
      createPlan: (request) => {
        calls.push(toJson(CreatePlanRequestSchema, request));
        const workloads = [{ namespace: 'default', name: 'web', action: Action.MOVE }];
        return request.validateOnly
          ? { changes: request.changes, workloads }
          : { id: '00112233445566aa', changes: request.changes, workloads };
      },
      executePlan: ({ id }) => {
        calls.push(id);
        return { workloads: [aWorkload()] };
      },
      getWorkload: () => aWorkload(),
    },
  };
  const result = await runCli(['rebalance', ...words], options);
  return { ...result, calls };
}

const evict = {
  evict: { namespace: 'default', name: 'web', replicaIds: ['web-1', 'web-2'] },
};

describe('cloudlessctl rebalance', () => {
  it('stores the proposed moves as a plan with --plan, and shows their gain', async () => {
    const { stdout, calls, exitCode } = await rebalance([
      '--plan',
      '--no-color',
      '--max-moves',
      '4',
    ]);
    expect(exitCode).toBe(0);
    expect(calls).toEqual([{ maxMoves: 4 }, { changes: [evict] }]);
    expect(stdout).toContain('2 moves, gain 4\n');
    expect(stdout).toContain('plan execute 00112233445566aa');
    const table = stdout.split('\n').slice(0, 8);
    expect(Math.max(...table.map(getTextWidth))).toBeLessThanOrEqual(80);
    expect(table.join('\n')).toMatchInlineSnapshot(`
      "WORKLOAD     REPLICA  FROM    TO      GAIN  REASON
      default/web  web-1    node-1  node-3  2     zone b has 1 replica and zone a has
                                                  3
      default/web  web-2    node-1  node-3  2     zone b has 1 replica and zone a has
                                                  3
      2 moves, gain 4

      workload default/web: move replicas"
    `);
  });

  it('only shows the moves with --dry-run', async () => {
    const { calls } = await rebalance(['--dry-run']);
    expect(calls).toEqual([{}, { changes: [evict], validateOnly: true }]);
  });

  it('executes the plan that it shows', async () => {
    const { calls, exitCode } = await rebalance([]);
    expect(exitCode).toBe(0);
    expect(calls.at(-1)).toBe('00112233445566aa');
  });

  it('plans nothing when no move has a gain', async () => {
    const { calls, stderr, stdout } = await rebalance(['--plan'], []);
    expect(`${stdout}${stderr}`).toContain('nothing to move');
    expect(calls).toHaveLength(1);
  });

  it.each(['0', '257', 'x'])('refuses --max-moves %s', async (text) => {
    const { stderr, exitCode } = await rebalance(['--max-moves', text]);
    expect(stderr).toContain(
      `--max-moves ${JSON.stringify(text)}: expected a whole number from 1 to 256`,
    );
    expect(exitCode).toBe(2);
  });
});
