import pc from 'picocolors';
import { WorkloadSpecSchema } from '@cloudless/api';
import { formatFieldChange } from './field-change-view.js';

const format = (path: string, before: unknown, after: unknown): string => {
  const [was = '', is = ''] = [before, after].map((value) =>
    value === undefined ? '' : JSON.stringify(value),
  );
  const change = { path, before: was, after: is } as Parameters<typeof formatFieldChange>[1];
  return formatFieldChange(WorkloadSpecSchema, change, pc.createColors(false)).join('\n');
};

describe('formatFieldChange', () => {
  it.each([
    {
      name: 'bytes',
      path: 'resources.requests.memory_bytes',
      values: ['33554432', '67108864'],
      shown: 'resources.requests.memoryBytes: 32Mi -> 64Mi',
    },
    {
      name: 'bytes that no unit divides',
      path: 'resources.requests.memory_bytes',
      values: [undefined, '1500'],
      shown: 'resources.requests.memoryBytes: (absent) -> 1500',
    },
    {
      name: 'CPU',
      path: 'resources.limits.cpu_millis',
      values: [500, 2000],
      shown: 'resources.limits.cpuMillis: 500m -> 2000m',
    },
    {
      name: 'a duration',
      path: 'rollout.min_ready_duration',
      values: ['2s', '5400s'],
      shown: 'rollout.minReadyDuration: 2s -> 1h30m',
    },
    {
      name: 'a fraction of a second',
      path: 'rollout.min_ready_duration',
      values: ['0.500s', undefined],
      shown: 'rollout.minReadyDuration: 500ms -> (absent)',
    },
    { name: 'a number', path: 'replicas', values: [3, 4], shown: 'replicas: 3 -> 4' },
    {
      name: 'an enum value',
      path: 'rollout.strategy',
      values: [undefined, 'BLUE_GREEN'],
      shown: 'rollout.strategy: (absent) -> BLUE_GREEN',
    },
    {
      name: 'a text that looks like a duration',
      path: 'env["WAIT"]',
      values: ['90s', '3600s'],
      shown: 'env["WAIT"]: "90s" -> "3600s"',
    },
    {
      name: 'a list of messages with durations',
      path: 'rollout.steps',
      values: [undefined, [{ replicas: 1, wait: '60s' }]],
      shown: 'rollout.steps: (absent) -> [{"replicas":1,"wait":"1m"}]',
    },
  ])('shows $name as in a manifest', ({ path, values: [before, after], shown }) => {
    expect(format(path, before, after)).toBe(`  ${shown}`);
  });

  it('shows a script of several lines as YAML, with the lines that differ', () => {
    const script = (word: string): string[] => [
      'sh',
      '-c',
      `echo 1\necho 2\necho 3\necho ${word}\necho 5\necho 6\necho 7\n`,
    ];
    expect(format('command', script('old'), script('new'))).toBe(
      [
        '  command:',
        '      echo 2',
        '      echo 3',
        '  -   echo old',
        '  +   echo new',
        '      echo 5',
        '      echo 6',
      ].join('\n'),
    );
  });

  it('shows a new script without joining its lines', () => {
    expect(format('args', undefined, ['a\nb'])).toBe(
      ['  args:', '  + - |-', '  +   a', '  +   b'].join('\n'),
    );
  });

  it('shows a long value on several lines instead of cutting it', () => {
    const words = Array.from({ length: 30 }, (_, index) => `word-${index}`);
    const text = format('args', words, [...words, 'last']);
    expect(text).toBe(['  args:', '    - word-28', '    - word-29', '  + - last'].join('\n'));
  });
});
