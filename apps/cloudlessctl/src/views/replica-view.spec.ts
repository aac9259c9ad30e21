import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import pc from 'picocolors';
import { ReplicaStatusSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { formatReplicaReason, formatReplicaTable, toReplicaPhaseCell } from './replica-view.js';

const NOW_MS = 1_800_000_000_000;
const style = pc.createColors(false);
const HEADERS = [
  ...['REPLICA', 'SLOT', 'VERSION', 'STATUS', 'READY', 'NODE', 'ZONE'],
  ...['RESTARTS', 'AGE', 'ENDPOINTS', 'REASON'],
];

/** A replica that waits 38.9 s for its next start. */
const aReplicaInBackoff = (changes: MessageInitShape<typeof ReplicaStatusSchema> = {}) =>
  create(ReplicaStatusSchema, {
    phase: Phase.RUNNING,
    reason: 'exit code 1, restarting in 51.2 s',
    restarts: 3,
    lastExitCode: 1,
    lastEndReason: 'exit code 1',
    nextStartAt: timestampFromMs(NOW_MS + 38_900),
    ...changes,
  });

describe('a replica in back-off', () => {
  it.each([
    {
      name: 'the time until the next start, the cause and the restarts',
      changes: {},
      reason: 'next start in 38s; exit code 1 (3 restarts)',
    },
    {
      name: 'minutes of a long delay',
      changes: { nextStartAt: timestampFromMs(NOW_MS + 290_000), restarts: 1 },
      reason: 'next start in 4m50s; exit code 1 (1 restart)',
    },
    {
      name: 'that the start is due when its time has passed by this clock',
      changes: { nextStartAt: timestampFromMs(NOW_MS - 60_000) },
      reason: 'next start due; exit code 1 (3 restarts)',
    },
    {
      name: 'the cause of a failed start without its delay, and no restarts of a container that never ran',
      changes: {
        phase: Phase.STARTING,
        reason: 'command: no executable server, restarting in 51.2 s',
        lastExitCode: undefined,
        lastEndReason: '',
        restarts: 0,
        failedStarts: 7,
      },
      reason: 'next start in 38s; command: no executable server (7 failed starts)',
    },
    {
      name: 'restarts and failed starts of a replica that has both',
      changes: { restarts: 2, failedStarts: 1 },
      reason: 'next start in 38s; exit code 1 (2 restarts, 1 failed start)',
    },
    {
      name: 'no cause when its agent gives none',
      changes: { reason: '', lastExitCode: undefined, lastEndReason: '' },
      reason: 'next start in 38s (3 restarts)',
    },
  ])('shows $name', ({ changes, reason }) => {
    expect(formatReplicaReason(aReplicaInBackoff(changes), NOW_MS)).toBe(reason);
  });

  it.each([
    { name: 'BackOff', changes: {}, text: 'BackOff' },
    { name: 'that the status is stale', changes: { stale: true }, text: 'BackOff,Stale' },
    {
      name: 'the phase when its agent reports no back-off',
      changes: { nextStartAt: undefined },
      text: 'Running',
    },
  ])('has the status $name', ({ changes, text }) => {
    expect(toReplicaPhaseCell(aReplicaInBackoff(changes), style)).toMatchObject({ text });
  });

  it('shows status, restarts and next start of a replica in back-off in one row', () => {
    const replica = aReplicaInBackoff({ id: 'aa-1', nodeId: 'n1' });
    const [header = '', row = ''] = formatReplicaTable([replica], NOW_MS, style).split('\n');
    expect(header.split(/ {2,}/)).toEqual(HEADERS);
    expect(row.split(/ {2,}/)).toEqual([
      ...['aa-1', '0', '0', 'BackOff', 'no', 'n1', '-', '3', '-', '-'],
      'next start in 38s; exit code 1 (3 restarts)',
    ]);
  });

  it('shows failed starts in a column of their own when a replica has some', () => {
    const counts = [
      { restarts: 0, failedStarts: 7 },
      { restarts: 3, failedStarts: 0 },
    ];
    const replicas = counts.map((changes, index) =>
      aReplicaInBackoff({ id: `aa-${index + 1}`, nodeId: 'n1', ...changes }),
    );
    const [header = '', ...rows] = formatReplicaTable(replicas, NOW_MS, style).split('\n');
    expect(header.split(/ {2,}/).slice(7, 9)).toEqual(['RESTARTS', 'FAILED STARTS']);
    expect(rows.slice(0, 2).map((row) => row.split(/ {2,}/).slice(7, 9))).toEqual([
      ['0', '7'],
      ['3', '0'],
    ]);
  });

  it('has the reason of its agent when the agent reports no back-off', () => {
    const replica = aReplicaInBackoff({ nextStartAt: undefined });
    expect(formatReplicaReason(replica, NOW_MS)).toBe(
      'exit code 1, restarting in 51.2 s (last exit code 1)',
    );
  });
});
