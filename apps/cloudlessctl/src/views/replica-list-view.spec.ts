import { create } from '@bufbuild/protobuf';
import pc from 'picocolors';
import { ReplicaStatusSchema } from '@cloudless/api';
import { formatNodeReplicas } from './replica-list-view.js';

describe('formatNodeReplicas', () => {
  it.each([
    { failedStarts: 7, columns: ['RESTARTS', 'FAILED STARTS', 'AGE'], cells: ['2', '7', '-'] },
    { failedStarts: 0, columns: ['RESTARTS', 'AGE', 'REASON'], cells: ['2', '-', 'queued'] },
  ])(
    'shows the columns $columns of a replica with $failedStarts failed starts',
    ({ failedStarts, columns, cells }) => {
      const replica = create(ReplicaStatusSchema, {
        id: 'aa-1',
        ...{ restarts: 2, failedStarts, reason: 'queued' },
      });
      const placed = { namespace: 'default', workload: 'web', requests: undefined, replica };
      const [header = '', row = ''] = formatNodeReplicas(
        [placed],
        1_800_000_000_000,
        pc.createColors(false),
      ).split('\n');
      expect(header.split(/ {2,}/).slice(6, 9)).toEqual(columns);
      expect(row.split(/ {2,}/).slice(6, 9)).toEqual(cells);
    },
  );
});
