import { create, type MessageInitShape } from '@bufbuild/protobuf';
import pc from 'picocolors';
import { PlanOutcome_Kind as OutcomeKind, WorkloadPlanSchema } from '@cloudless/api';
import { formatPlanLines } from './plan-view.js';

const REASON = 'needs 100Gi memory, more than the node has: 3 of 3 nodes';

const format = (
  fields: Omit<MessageInitShape<typeof WorkloadPlanSchema>, '$typeName'>,
  tableWidth?: number,
): readonly string[] =>
  formatPlanLines(create(WorkloadPlanSchema, fields), { ...pc.createColors(false), tableWidth });

const blockedPlan = {
  steps: [
    { description: 'create 1 of version 2', ready: 2, live: 3 },
    {
      description: `1 replica waits: no node fits (${REASON})`,
      ready: 2,
      live: 3,
      blocked: true,
    },
  ],
  totalSteps: 2,
  lowestReady: 2,
  readyBefore: 2,
  minAvailable: 1,
  highestLive: 3,
  warnings: [`1 replica would find no node: ${REASON}`],
  outcome: {
    kind: OutcomeKind.WAITS_FOR_NODE,
    message: 'rollout stays at 0 of 2 until a node fits, and fails after 10m without progress',
    ready: 2,
  },
};

describe('formatPlanLines', () => {
  it('shows the step that cannot happen, the warning and what stays', () => {
    expect(format(blockedPlan)).toEqual([
      expect.stringMatching(/^ {2}STEP +READY {3}MIN {3}LIVE$/),
      expect.stringMatching(/^ {2}create 1 of version 2 +2 {7}1 {5}3$/),
      `  1 replica waits: no node fits (${REASON})   2       1     3`,
      '  lowest ready 2 (minimum 1), highest live 3',
      `  warning: 1 replica would find no node: ${REASON}`,
      '  ends: rollout stays at 0 of 2 until a node fits, and fails after 10m without progress',
    ]);
  });

  it.each([80, 120, 200])(
    'cuts no reason and exceeds no line on a terminal of %i cells',
    (width) => {
      const lines = format(blockedPlan, width);
      expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(width);
      const words = lines.join(' ').replaceAll(/\s+/g, ' ');
      expect(words).toContain(`warning: 1 replica would find no node: ${REASON}`);
      expect(words).toContain('rollout stays at 0 of 2 until a node fits, and fails after 10m');
      expect(words).not.toContain('…');
    },
  );

  it('shows the last step also after more steps than fit on a screen', () => {
    const steps = Array.from({ length: 30 }, (_, index) => ({ description: `step ${index}` }));
    const blocked = { description: 'paused', blocked: true };
    const lines = format({ steps: [...steps, blocked], totalSteps: 31 });
    expect(lines.filter((line) => line.startsWith('  step'))).toHaveLength(20);
    expect(lines).toContain('  and 10 more steps');
    expect(lines.some((line) => line.startsWith('  paused'))).toBe(true);
  });

  it('shows a growing workload without a broken minimum', () => {
    const lines = format({
      steps: [{ description: 'create 1 of version 1', ready: 4, live: 6 }],
      totalSteps: 1,
      readyBefore: 4,
      lowestReady: 4,
      minAvailable: 5,
      highestLive: 6,
      outcome: { kind: OutcomeKind.COMPLETES, ready: 6 },
    });
    expect(lines.at(-1)).toBe('  ready from 4 (growing to 6), highest live 6');
  });

  it('lists the nodes of new replicas, and counts those on further nodes', () => {
    const placements = Array.from({ length: 20 }, (_, index) => ({ nodeId: `n${index}` }));
    const [line = ''] = format({ placements, totalPlacements: 30 });
    expect(line).toMatch(/^ {2}new replicas on: n0 \(1\), .*n11 \(1\), and 18 more replicas$/);
  });
});
