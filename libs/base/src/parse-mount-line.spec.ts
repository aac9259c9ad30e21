import { describe, expect, it } from '@jest/globals';
import { parseMountLine } from './parse-mount-line.js';

describe('parseMountLine', () => {
  it.each([
    {
      name: 'a line with optional fields',
      line: '37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer',
      mount: {
        ...{ device: '0:34', root: '/', mountPoint: '/sys/fs/cgroup/freezer' },
        ...{ type: 'cgroup', superOptions: 'rw,freezer' },
      },
    },
    {
      name: 'a line without optional fields, of a part of a file system',
      line: '30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate',
      mount: {
        ...{ device: '0:26', root: '/box', mountPoint: '/sys/fs/cgroup' },
        ...{ type: 'cgroup2', superOptions: 'rw,nsdelegate' },
      },
    },
    {
      name: 'paths with blank, tab, newline and backslash',
      line: '30 23 8:1 /a\\040b /c\\011d\\012e\\134f rw - ext4 /dev/sda1 rw',
      mount: {
        ...{ device: '8:1', root: '/a b', mountPoint: '/c\td\ne\\f' },
        ...{ type: 'ext4', superOptions: 'rw' },
      },
    },
    {
      name: 'a line without options of the file system',
      line: '30 23 0:5 / /run rw - tmpfs tmpfs',
      mount: {
        ...{ device: '0:5', root: '/', mountPoint: '/run' },
        ...{ type: 'tmpfs', superOptions: '' },
      },
    },
    { name: 'an empty line', line: '', mount: undefined },
    { name: 'a line without the separator', line: '30 23 0:5 / /run rw tmpfs', mount: undefined },
    { name: 'a line without a mount point', line: '30 23 0:5 / - tmpfs', mount: undefined },
  ])('parses $name', ({ line, mount }) => {
    expect(parseMountLine(line)).toEqual(mount);
  });
});
