import { formatFields } from './sections.js';

describe('formatFields', () => {
  it('keeps the lines of a script as a block, without control characters', () => {
    expect(
      formatFields([
        ['Image', 'web'],
        ['Command', "sh -c 'while true; do\n\tdate\x1b[31m\n  sleep 1\ndone\n'"],
        ['Empty', ''],
      ]),
    ).toBe(
      [
        'Image:    web',
        'Command:',
        "    sh -c 'while true; do",
        '    \tdate [31m',
        '      sleep 1',
        '    done',
        "    '",
        '',
      ].join('\n'),
    );
  });
});
