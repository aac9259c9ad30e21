import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runToEnd } from './processes.js';

/**
 * Returns the reason why disk images cannot be mounted; undefined when they can. Mounting needs
 * root, loop devices and the ext4 tools.
 */
export function findDiskImageProblem(): string | undefined {
  if (process.getuid?.() !== 0) return 'mounting a disk image needs root';
  const directory = execFileSync('mktemp', ['-d'], { encoding: 'utf8' }).trim();
  try {
    const script =
      'truncate -s 1M image && mkfs.ext4 -q image && mkdir on && mount -o loop image on && umount on';
    execFileSync('/bin/sh', ['-c', script], {
      cwd: directory,
      stdio: ['ignore', 'ignore', 'pipe'],
      encoding: 'utf8',
    });
    return undefined;
  } catch (reason) {
    return `a disk image cannot be mounted: ${String((reason as { readonly stderr?: unknown }).stderr ?? reason).trim()}`;
  } finally {
    execFileSync('rm', ['-rf', directory]);
  }
}

/**
 * Same as `describe`, for tests that mount disk images. Where that is impossible, the tests are
 * skipped, and the title has the reason.
 */
export function describeOnDiskImages(name: string, tests: () => void): void {
  const reason = findDiskImageProblem();
  if (reason === undefined) return describe(name, tests);
  process.stderr.write(`SKIPPED ${name}: ${reason}\n`);
  describe.skip(`${name} (skipped: ${reason})`, tests);
}

/** A file with an ext4 file system, and its mount. */
export class DiskImage {
  private mounted = false;

  private constructor(
    readonly file: string,
    /** Mount point. */
    readonly directory: string,
  ) {}

  /** Creates and mounts an image whose blocks are all allocated on the file system below. */
  static async create(file: string, sizeMiB: number): Promise<DiskImage> {
    const handle = await open(file, 'w', 0o600);
    const zeros = Buffer.alloc(1024 * 1024);
    for (let index = 0; index < sizeMiB; index += 1) await handle.write(zeros);
    await handle.sync();
    await handle.close();
    await run('mkfs.ext4', ['-q', '-F', '-m', '0', file]);
    return DiskImage.mount(file);
  }

  /** Mounts an existing image. */
  static async mount(file: string): Promise<DiskImage> {
    const directory = await mkdtemp(join(tmpdir(), 'cloudless-disk-'));
    const image = new DiskImage(file, directory);
    try {
      await run('mount', ['-o', 'loop', file, directory]);
    } catch (reason) {
      await rm(directory, { recursive: true });
      throw reason;
    }
    image.mounted = true;
    return image;
  }

  /** Creates a directory with mode 0700 on the image. */
  async makeDirectory(name: string): Promise<string> {
    const path = join(this.directory, name);
    await mkdir(path, { mode: 0o700, recursive: true });
    return path;
  }

  /**
   * Simulates a power loss: data that was not flushed is lost, and the file system can no longer be
   * used.
   * @see fs/ext4/ioctl.c, EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH; `godown` of xfstests
   *   does the same
   */
  async cutPower(): Promise<void> {
    const script =
      'my $how = pack("L", 2); open(my $d, "<", $ARGV[0]) or die $!; ioctl($d, 0x8004587d, $how) or die $!;';
    await run('perl', ['-e', script, this.directory]);
  }

  /** Unmounts the image, if it is mounted. The file stays. */
  async unmount(): Promise<void> {
    if (!this.mounted) return;
    this.mounted = false;
    await run('umount', [this.directory]);
    await rm(this.directory, { recursive: true });
  }
}

/** Runs a program; throws with its stderr when it fails. */
async function run(program: string, args: readonly string[]): Promise<void> {
  const { code, stderr } = await runToEnd(program, args);
  if (code !== 0) throw new Error(`${program} ${args.join(' ')}: ${stderr}`);
}
