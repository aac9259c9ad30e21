import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import pc from 'picocolors';
import { EventSchema } from '@cloudless/api';
import { formatEventTree, expandEventId, shortenEventId } from './event-view.js';

const plainStyle = pc.createColors(false);
const event = (init: MessageInitShape<typeof EventSchema>) =>
  create(EventSchema, {
    time: timestampFromMs(Date.UTC(2026, 0, 1)),
    namespace: 'default',
    workload: 'web',
    ...init,
  });
/** Returns the id of the event with this number in epoch 2. */
const id = (count: number): string => `0000000002-${String(count).padStart(10, '0')}`;

describe('shortenEventId and expandEventId', () => {
  it('remove and restore the leading zeros of both parts of an id', () => {
    expect(shortenEventId(id(40))).toBe('2-40');
    expect(shortenEventId('0000000001-0000000000')).toBe('1-0');
    expect(expandEventId('2-40')).toBe(id(40));
    expect(expandEventId(id(40))).toBe(id(40));
    expect(expandEventId('other')).toBe('other');
  });
});

describe('formatEventTree', () => {
  it('shows the causes of an event above the event and the consequences below', () => {
    const events = [
      event({ id: id(1), reason: 'UpdateWorkload', message: 'called', requestId: 'r1' }),
      event({
        id: id(2),
        reason: 'WorkloadUpdated',
        message: 'is version 2',
        causeId: id(1),
        requestId: 'r1',
      }),
      event({
        id: id(3),
        reason: 'ReplicasCreated',
        message: 'one more',
        causeId: id(2),
        decision: { id: 'rollout/u@7', why: '3 are wanted' },
      }),
      event({ id: id(4), reason: 'ReplicasPlaced', message: 'on a1', causeId: id(3) }),
      event({
        id: id(5),
        reason: 'RolloutStarted',
        message: 'begins',
        causeId: id(2),
        count: 4,
        firstTime: timestampFromMs(0),
      }),
    ];
    const tree = formatEventTree(events, id(3), plainStyle);
    expect(tree.split('\n').map((line) => line.replace(/  2026\S+  Info +/, '  '))).toEqual([
      '  2-1  UpdateWorkload  default/web  called',
      '  |  request: r1',
      '  `- 2-2  WorkloadUpdated  default/web  is version 2',
      '>    |- 2-3  ReplicasCreated  default/web  one more',
      '     |  |  why: 3 are wanted (rollout/u@7)',
      '     |  `- 2-4  ReplicasPlaced  default/web  on a1',
      expect.stringMatching(
        /^ {5}`- 2-5 {2}RolloutStarted {2}default\/web {2}begins \(4 times since .*\)$/,
      ),
      '',
    ]);
  });

  it('starts at an event whose cause is no longer stored', () => {
    expect(
      formatEventTree([event({ id: id(9), causeId: id(1), message: 'late' })], id(9), plainStyle),
    ).toMatch(/^> 2-9 .*late\n$/);
  });
});
