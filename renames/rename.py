#!/usr/bin/python3
"""Executes rows of renames.tsv in a worktree: rename.py WORKTREE CRATE [CRATE...]. Types by name resolution, then modules.

A type is renamed in its own file, and wherever a `use`, a glob of a parent or a path leads to it. Variants, strings and
comments outside of backticks stay. Prints what it is not sure of."""
import os, re, subprocess, sys
WT = sys.argv[1]; CRATES = sys.argv[2:]
os.chdir(WT)
ID = re.compile(r'[A-Za-z_]\w*')

def mask(s):
    """Comments to spaces but for what stands in backticks; strings to spaces. Also the kind of each byte."""
    out = list(s); kind = bytearray(len(s)); i = 0; n = len(s)
    def blank(a, b, k):
        for j in range(a, b):
            kind[j] = k
            if out[j] != '\n': out[j] = ' '
    while i < n:
        c = s[i]
        if s.startswith('//', i):
            e = s.find('\n', i); e = n if e < 0 else e
            blank(i, e, 1); i = e
        elif s.startswith('/*', i):
            e = s.find('*/', i); e = n if e < 0 else e + 2
            blank(i, e, 1); i = e
        elif c == '"' or (c in 'rb' and re.match(r'(b?r#*"|b")', s[i:i+8]) and not (i and (s[i-1].isalnum() or s[i-1] == '_'))):
            m = re.match(r'b?(r?)(#*)"', s[i:])
            e = i + m.end()
            if m.group(1):
                e = s.find('"' + m.group(2), e); e = n if e < 0 else e + 1 + len(m.group(2))
            else:
                while e < n and s[e] != '"': e += 2 if s[e] == '\\' else 1
                e += 1
            blank(i, e, 2); i = e
        elif c == "'":
            m = re.match(r"'(\\.[^']*|[^\\'])'", s[i:i+14])
            if m: blank(i, i + m.end(), 2); i += m.end()
            else: i += 1
        else: i += 1
    return ''.join(out)

class File:
    def __init__(self, path):
        self.path = path; self.load()
    def load(self):
        self.text = open(self.path).read(); self.code = mask(self.text)
        self.uses = []   # (segments, leaf offset, alias, depth of inline modules, is glob)
        for m in re.finditer(r'\buse\s+([^;]+);', self.code):
            depth = self.inline_depth(m.start())
            self.tree(m.group(1), m.start(1), [], depth)
        self.defs = {m.group(1) for m in re.finditer(r'(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|trait|union)\s+(\w+)', self.code)}
        self.defs |= {m.group(1) for m in re.finditer(r'(?m)^(?:pub(?:\([^)]*\))?\s+)?type\s+(\w+)', self.code)}
        self.mods = {m.group(1) for m in re.finditer(r'\bmod\s+(\w+)\s*;', self.code)}
    def inline_depth(self, at):
        d = 0; stack = []
        for m in re.finditer(r'\bmod\s+\w+\s*\{|\{|\}', self.code[:at]):
            t = m.group(0)
            if t == '}':
                if stack: d -= stack.pop()
            else:
                k = 1 if t.startswith('mod') else 0
                stack.append(k); d += k
        return d
    def tree(self, s, off, pre, depth):
        i = 0; n = len(s); segs = list(pre); last = off
        m = re.match(r'\s*(?:::)?\s*', s); i = m.end()
        while i < n:
            m = re.match(r'\s*(\w+|\*)\s*', s[i:])
            if m:
                name = m.group(1); at = off + i + m.start(1); i += m.end()
                rest = s[i:]
                if name == '*': self.uses.append((segs, at, None, depth, True)); return
                if rest.startswith('::'):
                    segs = segs + [name]; i += 2; self.segs_at = at
                    self.uses.append((segs, at, '', depth, None)) # a segment on the way
                    continue
                a = re.match(r'as\s+(\w+)', rest)
                if name == 'self' and segs:
                    self.uses.append((segs, at, a.group(1) if a else segs[-1], depth, False)); return
                self.uses.append((segs + [name], at, a.group(1) if a else name, depth, False)); return
            if s[i:].lstrip().startswith('{'):
                i = s.index('{', i); d = 0; j = i; start = i + 1
                while True:
                    if s[j] == '{': d += 1
                    if s[j] == '}': d -= 1
                    if (s[j] == ',' and d == 1) or d == 0:
                        part = s[start:j]
                        if part.strip(): self.tree(part, off + start, segs, depth)
                        start = j + 1
                    if d == 0: return
                    j += 1
            return

files = {}
def load_all():
    for root, ds, fs in os.walk('.'):
        ds[:] = [d for d in ds if d not in ('target', '.git', 'node_modules', 'web', 'vectors')]
        for f in fs:
            if f.endswith('.rs'):
                p = os.path.join(root, f)[2:]; files[p] = File(p)

def crate_root(path):
    m = re.match(r'(crates/[^/]+|fuzz)/', path); return m.group(1) if m else None
def module_dir(path):
    b, f = os.path.split(path)
    if f in ('mod.rs', 'lib.rs', 'main.rs') or (re.search(r'/(tests|benches|examples|targets)$', b)): return b
    return path[:-3]
def child(path, name):
    if name not in files[path].mods: return None
    d = module_dir(path)
    m = re.search(r'#\[path = "([^"]+)"\]\s*(?:pub(?:\([^)]*\))?\s+)?mod ' + name, files[path].text)
    if m:
        p = os.path.normpath(os.path.join(os.path.dirname(path), m.group(1)))
        return p if p in files else None
    for p in (f'{d}/{name}.rs', f'{d}/{name}/mod.rs'):
        if p in files: return p
def parent(path):
    b, f = os.path.split(path)
    d = os.path.dirname(b) if f == 'mod.rs' else b
    for p in (f'{d}/mod.rs', f'{d}/lib.rs', f'{d}/main.rs', d + '.rs'):
        if p in files and p != path: return p
def root_of(path):
    r = crate_root(path)
    for p in (f'{r}/src/lib.rs', f'{r}/src/main.rs'):
        if p in files and path.startswith(f'{r}/src/'): return p
    q = path
    while parent(q): q = parent(q)
    return q
def ext(name, path=None):
    if name == 'farhaul': p = 'crates/farhaul/src/lib.rs'
    elif name.startswith('farhaul_'): p = f'crates/{name[8:]}/src/lib.rs'
    else: return None
    return p if p in files else None

def module(path, segs, depth, seen=()):
    """The file of the module that segs name, from inside file path; None if unknown or external."""
    cur = path; i = 0; d = depth
    if not segs: return cur
    s = segs[0]
    if s == 'crate': cur = root_of(path); i = 1
    elif s == 'self': i = 1
    elif s == 'super':
        while i < len(segs) and segs[i] == 'super':
            if d > 0: d -= 1
            else:
                cur = parent(cur)
                if cur is None: return None
            i += 1
    elif ext(s): cur = ext(s); i = 1
    for s in segs[i:]:
        n = child(cur, s)
        if n is None: n = imported_module(cur, s, seen)
        if n is None: return None
        cur = n
    return cur
def imported_module(path, name, seen=()):
    if (path, name, 'm') in seen: return None
    seen = seen + ((path, name, 'm'),)
    for segs, at, alias, depth, glob in files[path].uses:
        if glob is False and alias == name:
            m = module(path, segs, depth, seen)
            if m: return m
        if glob is True:
            m = module(path, segs, depth, seen)
            if m and m != path:
                n = child(m, name) or imported_module(m, name, seen)
                if n: return n
def resolve(path, name, seen=()):
    """All files that define what name means in file path."""
    if (path, name) in seen: return set()
    seen = seen + ((path, name),)
    out = set()
    if name in files[path].defs: out.add(path)
    for segs, at, alias, depth, glob in files[path].uses:
        if glob is False and alias == name: out |= target(path, segs, depth, seen)
    if not out:
        for segs, at, alias, depth, glob in files[path].uses:
            if glob is True:
                m = module(path, segs, depth)
                if m and m != path: out |= resolve(m, name, seen)
    return out
def target(path, segs, depth, seen=()):
    m = module(path, segs[:-1], depth)
    if m is None: return {'?'}
    if m == path and len(segs) == 1: return {'?'}
    if m == path and segs[-1] not in files[path].defs and (path, segs[-1]) in seen: return set()
    return resolve(m, segs[-1], seen) or {'?'}

def variants(code):
    """Offsets of names of variants in their definitions."""
    out = set()
    for m in re.finditer(r'\benum\s+\w+[^{;]*\{', code):
        d = 1; i = m.end(); fresh = True
        while i < len(code) and d:
            c = code[i]
            if c in '{([': d += 1
            elif c in '})]':
                d -= 1
            elif c == ',' and d == 1: fresh = True
            elif d == 1 and fresh and (c.isalpha() or c == '_'):
                out.add(i); fresh = False
                i += ID.match(code[i:]).end(); continue
            i += 1
    return out

def ticks(text):
    """Stretches in backticks in comments."""
    out = []
    for m in re.finditer(r'(?m)^\s*//[/!]?.*$|[^:"]//.*$', text):
        line = m.group(0)
        for t in re.finditer(r'`([^`]+)`', line): out.append((m.start() + t.start(1), m.start() + t.end(1)))
    return out

def rename_type(deffile, old, new):
    edits = {}; unsure = []
    for p, f in files.items():
        if not re.search(r'\b%s\b' % old, f.text): continue
        res = resolve(p, old)
        here = deffile in res
        if here and len(res) > 1: unsure.append((p, 'several: ' + ' '.join(sorted(res))))
        var = variants(f.code); e = []
        useleaf = {at: (segs, depth) for segs, at, alias, depth, glob in f.uses if glob is False}
        onway = {at: (segs, depth) for segs, at, alias, depth, glob in f.uses if glob is None}
        for m in re.finditer(r'\b%s\b' % old, f.code):
            a = m.start()
            if a in useleaf:
                segs, depth = useleaf[a]
                if deffile in target(p, segs, depth): e.append(a)
                continue
            if a in var: continue
            pre = f.code[:a]
            q = re.search(r'((?:\b\w+\s*::\s*)+)$', pre[-200:])
            if q or a in onway:
                qs = re.findall(r'\w+', q.group(1)) if q else []
                if a in onway: qs = onway[a][0][:-1]
                if qs and not (qs[-1][0].islower()): continue
                if qs:
                    depth = f.inline_depth(a)
                    mod = module(p, qs, depth) or module(p, qs, 0)
                    if mod and deffile in resolve(mod, old): e.append(a)
                    continue
            if re.search(r'::\s*$', pre[-20:]): continue       # behind <T>::
            if re.search(r'\btype\s+$', pre[-20:]) and p != deffile: continue
            if re.search(r'^\s+type\s+$', pre[pre.rfind('\n')+1:]) : continue
            if here: e.append(a)
        for (s, t) in ticks(f.text):
            for m in re.finditer(r'\b%s\b' % old, f.text[s:t]):
                a = s + m.start(); q = re.search(r'((?:\b\w+::)+)$', f.text[s:a])
                if q:
                    qs = re.findall(r'\w+', q.group(1))
                    if not qs[-1][0].islower(): continue
                    mod = module(p, qs, f.inline_depth(s)) or module(p, qs, 0)
                    if mod and deffile in resolve(mod, old): e.append(a)
                elif here: e.append(a)
        if e: edits[p] = sorted(set(e))
    for p, e in edits.items():
        t = files[p].text
        for a in reversed(e): t = t[:a] + new + t[a+len(old):]
        open(p, 'w').write(t); files[p].load()
    n = sum(map(len, edits.values()))
    print(f'{deffile}: {old} -> {new}: {n} in {len(edits)} files' + (f'  others: {sorted({crate_root(p) for p in edits} - {crate_root(deffile)})}' if {crate_root(p) for p in edits} - {crate_root(deffile)} else ''))
    for u in unsure: print('   UNSURE', *u)

def rename_module(oldfile, old, new):
    isdir = oldfile.endswith('/mod.rs')
    base = oldfile[:-len('/mod.rs')] if isdir else oldfile[:-3]
    newbase = base[:-len(old)] + new
    edits = {}
    for p, f in files.items():
        if not re.search(r'\b%s\b' % old, f.code) : continue
        e = []
        at_use = {}
        for segs, at, alias, depth, glob in f.uses:
            if glob is not True: at_use[at] = (segs, depth, alias)
        for m in re.finditer(r'\b%s\b' % old, f.code):
            a = m.start(); pre = f.code[:a]; post = f.code[m.end():m.end()+10]
            if re.search(r'\bmod\s+$', pre[-10:]):
                if child(p, old) == oldfile and post.lstrip().startswith(';'): e.append(a)
                continue
            if a in at_use:
                segs, depth, _ = at_use[a]
                if module(p, segs, depth) == oldfile: e.append(a)
                continue
            if not re.match(r'\s*::', post): continue
            if re.search(r'::\s*<?$', pre[-10:]) or True:
                q = re.search(r'((?:\b\w+\s*::\s*)+)$', pre[-200:])
                qs = re.findall(r'\w+', q.group(1)) if q else []
                d = f.inline_depth(a)
                r = module(p, qs + [old], d) or module(p, qs + [old], 0)
                if r == oldfile: e.append(a)
        for (s, t) in ticks(f.text):
            for m in re.finditer(r'\b%s(?=::)' % old, f.text[s:t]):
                a = s + m.start(); q = re.search(r'((?:\b\w+::)+)$', f.text[s:a])
                qs = re.findall(r'\w+', q.group(1)) if q else []
                d = f.inline_depth(a)
                if (module(p, qs + [old], d) or module(p, qs + [old], 0)) == oldfile: e.append(a)
        # [`super::old`] at the end of a path
        for (s, t) in ticks(f.text):
            m = re.search(r'((?:\b\w+::)+)%s$' % old, f.text[s:t])
            if m:
                qs = re.findall(r'\w+', m.group(1))
                if module(p, qs + [old], 0) == oldfile or module(p, qs + [old], 1) == oldfile: e.append(t - len(old))
        if e: edits[p] = sorted(set(e))
    for p, e in edits.items():
        t = files[p].text
        for a in reversed(e): t = t[:a] + new + t[a+len(old):]
        open(p, 'w').write(t)
    if isdir: subprocess.check_call(['git', 'mv', base, newbase])
    else:
        subprocess.check_call(['git', 'mv', oldfile, newbase + '.rs'])
        if os.path.isdir(base): subprocess.check_call(['git', 'mv', base, newbase])
    # what names the file in comments and docs
    tail = '/'.join(base.split('/')[-2:]); newtail = '/'.join(newbase.split('/')[-2:])
    print(f'{oldfile}: module {old} -> {new}: {sum(map(len, edits.values()))} in {len(edits)} files; others {sorted({crate_root(p) for p in edits} - {crate_root(oldfile)})}')
    files.clear(); load_all()

load_all()
if __name__ == '__main__':
    rows = [l.rstrip('\n').split('\t') for l in open('renames/renames.tsv')][1:]
    moved = []
    for c in CRATES:
        for r in rows:
            if r[0] == c and not r[2].startswith('mod ') and not (len(r) > 5 and r[5]):
                rename_type(f'crates/{c}/{r[1]}', r[2], r[3])
        for r in rows:
            if r[0] == c and r[2].startswith('mod ') and not (len(r) > 5 and r[5]):
                p = f'crates/{c}/{r[1]}'
                for a, b in moved: p = p.replace(a, b) if p.startswith(a) else p
                o, n = r[2][4:], r[3][4:]
                rename_module(p, o, n)
                b = p[:-len('/mod.rs')] if p.endswith('/mod.rs') else p[:-3]
                moved.append((b + '/', b[:-len(o)] + n + '/'))
