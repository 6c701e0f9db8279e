/** Small disks with real content: pieces of this machine's own programs, changed as a VM changes a disk. */

import { randomBytes } from "node:crypto";
import { open, stat, writeFile } from "node:fs/promises";

const MIB = 1024 * 1024;

/** `mib` mebibytes of the Node.js program from `from` on; it wraps around at its end. */
export async function content(fromMib: number, mib: number): Promise<Buffer> {
  const { size } = await stat(process.execPath);
  const file = await open(process.execPath);
  try {
    const buffer = Buffer.alloc(mib * MIB);
    for (let at = 0; at < buffer.length; ) {
      const place = (fromMib * MIB + at) % size;
      const { bytesRead } = await file.read(buffer, at, Math.min(buffer.length - at, size - place), place);
      at += bytesRead;
    }
    return buffer;
  } finally {
    await file.close();
  }
}

/** A new disk. */
export async function makeDisk(path: string, fromMib: number, mib: number): Promise<void> {
  await writeFile(path, await content(fromMib, mib));
}

/** A new disk that neither deduplicates nor compresses: its upload takes as long as it can. */
export async function makeRandomDisk(path: string, mib: number): Promise<void> {
  await writeFile(path, randomBytes(mib * MIB));
}

/** Writes new, random-looking bytes over a disk: `mib` of them from `atMib` on, never the same twice. */
export async function change(path: string, atMib: number, mib: number, seed: number): Promise<void> {
  const bytes = await content(seed % 40, mib);
  // Every chunk becomes new, and still compresses like a program.
  for (let at = 0; at < bytes.length; at += 512) bytes.writeUInt32LE((seed * 2_654_435_761 + at) >>> 0, at);
  const file = await open(path, "r+");
  try {
    await file.write(bytes, 0, bytes.length, atMib * MIB);
  } finally {
    await file.close();
  }
}
