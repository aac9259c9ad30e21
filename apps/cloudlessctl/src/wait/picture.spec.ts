import fc from 'fast-check';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { create } from '@bufbuild/protobuf';
import pc from 'picocolors';
import { ReplicaStatusSchema, ReplicaStatus_Phase } from '@cloudless/api';
import { getTextWidth } from '../output/text-width.js';
import { aRollout } from '../testing/a-rollout.js';
import { NOW_MS, aWorkload } from '../testing/run-cli.js';
import { formatPicture } from './picture.js';
import type { PictureView } from './picture.js';
import { drawWorkload } from './workload-picture.js';

const view = (changes: Partial<PictureView> = {}): PictureView => ({
  width: 80,
  height: 24,
  nowMs: NOW_MS,
  elapsedMs: 12_000,
  style: pc.createColors(false),
  hasUnicode: false,
  ...changes,
});
const drawAt = (workload: ReturnType<typeof aWorkload>, changes: Partial<PictureView> = {}) => {
  const sizes = view(changes);
  return formatPicture(drawWorkload(workload, sizes), sizes.width, sizes.height - 1);
};

describe('picture of a workload', () => {
  it('shows one bar and the replicas that are not ready for a first version', () => {
    const starting = aWorkload({
      status: {
        readyReplicas: 1,
        reason: 'replica aa-2: waiting for port http',
        replicas: [
          create(ReplicaStatusSchema, { id: 'aa-1', ready: true, nodeId: 'n1' }),
          create(ReplicaStatusSchema, {
            id: 'aa-2',
            phase: ReplicaStatus_Phase.STARTING,
            nodeId: 'node2',
            reason: 'waiting for port http',
          }),
        ],
      },
    });
    expect(drawAt(starting)).toBe(
      [
        'workload default/web  12s',
        'ready  [####################....................] 1 of 2',
        '  aa-2  Starting  node2  waiting for port http',
        '  replica aa-2: waiting for port http',
      ].join('\n'),
    );
  });

  it('counts down to the next start of a replica in back-off', () => {
    const workload = aWorkload({
      status: {
        desiredReplicas: 1,
        reason: 'replica aa-1 waits for its next start (exit code 1)',
        replicas: [
          create(ReplicaStatusSchema, {
            id: 'aa-1',
            phase: ReplicaStatus_Phase.RUNNING,
            nodeId: 'n1',
            restarts: 3,
            reason: 'exit code 1, restarting in 1.6 s',
            lastEndReason: 'exit code 1',
            nextStartAt: timestampFromMs(NOW_MS + 1_500),
          }),
        ],
      },
    });
    const drawLineAfter = (elapsedMs: number) =>
      drawAt(workload, { nowMs: NOW_MS + elapsedMs }).split('\n')[2];
    expect(drawLineAfter(0)).toBe(
      '  aa-1  BackOff  n1  next start in 1s; exit code 1 (3 restarts)',
    );
    expect(drawLineAfter(1_500)).toBe(
      '  aa-1  BackOff  n1  next start due; exit code 1 (3 restarts)',
    );
  });

  it('shows three bars, extra replicas and the progress deadline for a rollout', () => {
    const workload = aRollout({ until: timestampFromMs(NOW_MS + 600_000) }, { updated: 2, old: 3 });
    Object.assign(workload.status ?? {}, { readyReplicas: 5 });
    expect(drawAt(workload, { width: 70, hasUnicode: true })).toBe(
      [
        'workload default/web  version 2, from version 1  12s',
        'ready  ██████████████████████┃███████ 4 of 4, 1 extra, minimum 3',
        'new    ███████████████░░░░░░░░░░░░░░░ 2 of 4 ready',
        'old    ███████████████████████░░░░░░░ 3',
        '  fails if nothing happens for 10m',
      ].join('\n'),
    );
  });

  it('fits every terminal', () => {
    fc.assert(
      fc.property(
        ...[fc.integer({ min: 2, max: 200 }), fc.integer({ min: 2, max: 60 })],
        fc.nat(120),
        fc.boolean(),
        (width, height, unready, hasUnicode) => {
          const workload = aRollout({ reason: 'a long reason '.repeat(20) });
          for (let index = 0; index < unready; index += 1)
            workload.status?.replicas.push(
              create(ReplicaStatusSchema, { id: `id-${index}`, reason: '理由' }),
            );
          const lines = drawAt(workload, { width, height, hasUnicode }).split('\n');
          expect(lines.length).toBeLessThan(Math.max(2, height));
          for (const line of lines) expect(getTextWidth(line)).toBeLessThanOrEqual(width);
        },
      ),
    );
  });
});
